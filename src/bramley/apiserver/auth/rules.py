"""Policy rules: what a rule allows, whether rules cover others, and the messages about missing permissions.

Pure. `described` and `compacted` give the words with which kube-apiserver refuses an escalation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.auth.attributes import Attributes

ALL = "*"


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One rule of a role, as the API has it."""

    verbs: tuple[str, ...] | None = ()
    api_groups: tuple[str, ...] | None = ()
    resources: tuple[str, ...] | None = ()
    resource_names: tuple[str, ...] | None = ()
    non_resource_urls: tuple[str, ...] | None = msgspec.field(name="nonResourceURLs", default=())


EVERYTHING = (Rule((ALL,), (ALL,), (ALL,)), Rule((ALL,), non_resource_urls=(ALL,)))


class _Grant(msgspec.Struct, frozen=True, gc=False):
    """The part of a rule that is compared once its resource matched."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]

    def allows(self, attributes: Attributes) -> bool:
        return (
            (attributes.verb in self.verbs or ALL in self.verbs)
            and (attributes.group in self.groups or ALL in self.groups)
            and (not self.names or attributes.name in self.names)
        )


class RuleSet:
    """The rules of one role, indexed by resource, so that a decision costs a few look-ups however many rules there are."""

    __slots__ = ("_by_path", "_by_resource", "rules")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_resource: dict[str, list[_Grant]] = {}
        self._by_path: list[tuple[frozenset[str], str]] = []
        for rule in self.rules:
            verbs = frozenset(rule.verbs or ())
            names = frozenset(rule.resource_names or ())
            grant = _Grant(verbs, frozenset(rule.api_groups or ()), names)
            for resource in rule.resources or ():
                self._by_resource.setdefault(resource, []).append(grant)
            self._by_path += ((verbs, path) for path in rule.non_resource_urls or ())

    def allow(self, attributes: Attributes) -> bool:
        """Return whether one of the rules allows the request."""
        if attributes.path:
            return any(
                (attributes.verb in verbs or ALL in verbs) and path_covers(path, attributes.path)
                for verbs, path in self._by_path
            )
        grants = self._by_resource
        if _any_allows(grants.get(attributes.combined_resource), attributes) or _any_allows(
            grants.get(ALL), attributes
        ):
            return True
        if not attributes.subresource:
            return False
        return _any_allows(grants.get(f"{ALL}/{attributes.subresource}"), attributes)


NO_RULES = RuleSet(())


def _any_allows(grants: list[_Grant] | None, attributes: Attributes) -> bool:
    return grants is not None and any(grant.allows(attributes) for grant in grants)


def path_covers(pattern: str, path: str) -> bool:
    """Return whether a pattern matches a path, or every path of another pattern; it may end with a star."""
    return pattern == path or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


def uncovered(owned: Sequence[Rule], requested: Iterable[Rule]) -> list[Rule]:
    """Return the single permissions of the requested rules that none of the owned ones covers."""
    single = [subrule for rule in requested for subrule in breakdown(rule)]
    return [subrule for subrule in single if not any(_covers(rule, subrule) for rule in owned)]


def breakdown(rule: Rule) -> list[Rule]:
    """Return a rule as rules of one verb, one group, one resource and at most one name each, or of one verb and path."""
    single = [
        Rule((verb,), (group,), (resource,), name)
        for group in rule.api_groups or ()
        for resource in rule.resources or ()
        for verb in rule.verbs or ()
        for name in ([(each,) for each in rule.resource_names] if rule.resource_names else [()])
    ]
    paths = rule.non_resource_urls or ()
    return single + [
        Rule((verb,), non_resource_urls=(path,)) for path in paths for verb in rule.verbs or ()
    ]


def _covers(owned: Rule, subrule: Rule) -> bool:
    """Return whether a rule covers a single permission."""
    if not _has(owned.verbs, subrule.verbs):
        return False
    if subrule.non_resource_urls:
        paths = owned.non_resource_urls or ()
        return any(path_covers(pattern, subrule.non_resource_urls[0]) for pattern in paths)
    return (
        _has(owned.api_groups, subrule.api_groups)
        and _has_resource(owned.resources or (), (subrule.resources or ("",))[0])
        and (not owned.resource_names or _has_name(owned.resource_names, subrule.resource_names))
    )


def _has(owned: Sequence[str] | None, requested: Sequence[str] | None) -> bool:
    return ALL in (owned or ()) or (requested or ("",))[0] in (owned or ())


def _has_resource(owned: Sequence[str], requested: str) -> bool:
    if ALL in owned or requested in owned:
        return True
    _, slash, subresource = requested.partition("/")
    return bool(slash) and f"{ALL}/{subresource}" in owned


def _has_name(owned: Sequence[str], requested: Sequence[str] | None) -> bool:
    return bool(requested) and (requested or ("",))[0] in owned


def compacted(single: Iterable[Rule]) -> list[Rule]:
    """Return single permissions with those that differ only by their verb merged, in the order of the first of each."""
    verbs: dict[tuple[object, ...], list[str]] = {}
    first: dict[tuple[object, ...], Rule] = {}
    for rule in single:
        key = rule.api_groups, rule.resources, rule.resource_names, rule.non_resource_urls
        first.setdefault(key, rule)
        verbs.setdefault(key, []).extend(rule.verbs or ())
    return [msgspec.structs.replace(rule, verbs=tuple(verbs[key])) for key, rule in first.items()]


def described(rule: Rule) -> str:
    """Return a rule in one line."""
    parts = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    listed = (f"{name}:{texts(values)}" for name, values in parts if values)
    return "{" + ", ".join(listed) + "}"


def texts(values: Sequence[str]) -> str:
    """Return strings as Go prints a list of them."""
    return f"[{' '.join(quoted(value) for value in values)}]"
