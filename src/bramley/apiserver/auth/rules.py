"""Policy rules: what one allows, whether some rules hold all rights of others, and the words for rights that are missing.

Pure; the words of `described` and `compacted` are those that a real server refuses an escalation with.
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


EVERYTHING = (
    Rule((ALL,), (ALL,), (ALL,)),
    Rule((ALL,), non_resource_urls=(ALL,)),
)


class _Grant(msgspec.Struct, frozen=True, gc=False):
    """The part of a rule that is left to compare once its resource was found."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]

    def allows(self, asked: Attributes) -> bool:
        return (
            (asked.verb in self.verbs or ALL in self.verbs)
            and (asked.group in self.groups or ALL in self.groups)
            and (not self.names or asked.name in self.names)
        )


class RuleSet:
    """The rules of one role, found by resource, so that a question costs a few look-ups however many rules there are."""

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

    def allow(self, asked: Attributes) -> bool:
        """Tell whether one of the rules allows it."""
        if asked.path:
            return self._allow_path(asked)
        found = self._by_resource
        if _any_allows(found.get(asked.whole_resource), asked) or _any_allows(
            found.get(ALL), asked
        ):
            return True
        if not asked.subresource:
            return False
        return _any_allows(found.get(f"{ALL}/{asked.subresource}"), asked)

    def _allow_path(self, asked: Attributes) -> bool:
        return any(
            (asked.verb in verbs or ALL in verbs) and path_covers(path, asked.path)
            for verbs, path in self._by_path
        )


NO_RULES = RuleSet(())


def _any_allows(grants: list[_Grant] | None, asked: Attributes) -> bool:
    return grants is not None and any(grant.allows(asked) for grant in grants)


def path_covers(pattern: str, path: str) -> bool:
    """Tell whether a path, or every path of another pattern, is among those of a pattern; a star may stand at its end."""
    return pattern == path or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


def uncovered(owned: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the single rights in the wanted rules that none of the owned ones holds."""
    single = [part for rule in wanted for part in broken_down(rule)]
    return [part for part in single if not any(_covers(rule, part) for rule in owned)]


def broken_down(rule: Rule) -> list[Rule]:
    """Return a rule as rules of one verb, one group, one resource and at most one name each, or of one verb and path."""
    single = [
        Rule((verb,), (group,), (resource,), name)
        for group in rule.api_groups or ()
        for resource in rule.resources or ()
        for verb in rule.verbs or ()
        for name in _one_by_one(rule.resource_names)
    ]
    paths = rule.non_resource_urls or ()
    return single + [
        Rule((verb,), non_resource_urls=(path,)) for path in paths for verb in rule.verbs or ()
    ]


def _one_by_one(names: Sequence[str] | None) -> list[tuple[str, ...]]:
    return [(name,) for name in names] if names else [()]


def _covers(owned: Rule, part: Rule) -> bool:
    """Tell whether a rule holds a single right."""
    if not _holds(owned.verbs, part.verbs):
        return False
    if part.non_resource_urls:
        paths = owned.non_resource_urls or ()
        return any(path_covers(pattern, part.non_resource_urls[0]) for pattern in paths)
    return (
        _holds(owned.api_groups, part.api_groups)
        and _holds_resource(owned.resources or (), (part.resources or ("",))[0])
        and (not owned.resource_names or _holds_name(owned.resource_names, part.resource_names))
    )


def _holds(owned: Sequence[str] | None, wanted: Sequence[str] | None) -> bool:
    return ALL in (owned or ()) or (wanted or ("",))[0] in (owned or ())


def _holds_resource(owned: Sequence[str], wanted: str) -> bool:
    if ALL in owned or wanted in owned:
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"{ALL}/{subresource}" in owned


def _holds_name(owned: Sequence[str], wanted: Sequence[str] | None) -> bool:
    return bool(wanted) and (wanted or ("",))[0] in owned


def compacted(single: Iterable[Rule]) -> list[Rule]:
    """Return single rights with those that differ by their verb only put together, in the order of the first of each."""
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
    told = (f"{name}:{texts(values)}" for name, values in parts if values)
    return "{" + ", ".join(told) + "}"


def texts(values: Sequence[str]) -> str:
    """Return texts as a real server shows a list of them."""
    return f"[{' '.join(quoted(value) for value in values)}]"
