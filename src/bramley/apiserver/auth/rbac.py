"""RBAC over the store: the roles that are bound to a user, and whether one of them allows a request.

Bindings are indexed by subject whenever one of them changed, roles are compiled once per version; a decision then costs a few
look-ups per binding of its user, microseconds in all. Only durable objects count.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bramley.apiserver.apimachinery import users
from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.rules import NO_RULES, Rule, RuleSet
from bramley.apiserver.store.records import Key, Record
from bramley.apiserver.store.store import Store

GROUP = "rbac.authorization.k8s.io"
ROLES = f"roles.{GROUP}"
CLUSTER_ROLES = f"clusterroles.{GROUP}"
BINDINGS = f"rolebindings.{GROUP}"
CLUSTER_BINDINGS = f"clusterrolebindings.{GROUP}"


class RoleRef(msgspec.Struct, frozen=True, gc=False):
    """The role of a binding."""

    kind: str = ""
    name: str = ""


class _Subject(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    role_ref: RoleRef
    metadata: _Metadata
    kind: str = ""
    subjects: list[_Subject] | None = None


class _Role(msgspec.Struct, frozen=True):
    rules: list[Rule] | None = None


class Grant(msgspec.Struct, frozen=True):
    """A role that a subject has, and the binding that grants it."""

    binding: _Binding
    subject: _Subject
    role: Key

    def __str__(self) -> str:
        meta = self.binding.metadata
        name = f"{meta.name}/{meta.namespace}" if meta.namespace else meta.name
        reference = self.binding.role_ref
        return (
            f"{self.binding.kind} {quoted(name)} of {reference.kind} {quoted(reference.name)} "
            f"to {_subject_text(self.subject, meta.namespace)}"
        )


# Grants by namespace ("" for all namespaces), kind and name of the subject.
_Index = dict[tuple[str, str, str], list[Grant]]
_USER, _GROUP = "User", "Group"


class Rbac:
    """Authorizes by the roles and bindings of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index: _Index = {}
        self._index_revisions = (-1, -1)
        self._decoded: dict[Key, tuple[Record, _Binding | None]] = {}
        self._compiled: dict[Key, tuple[Record, RuleSet]] = {}

    def allows(self, attributes: Attributes) -> Grant | None:
        """Return the grant that allows the request, None if there is none."""
        for grant in self.grants(attributes.user, attributes.namespace):
            if self._rules(grant.role).allow(attributes):
                return grant
        return None

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """Yield the grants of a user for all namespaces, and those in one namespace."""
        index = self._current()
        for scope in ("", namespace) if namespace else ("",):
            yield from index.get((scope, _USER, user.name), ())
            for group in user.groups:
                yield from index.get((scope, _GROUP, group), ())

    def rules_for(self, user: User, namespace: str) -> list[Rule]:
        """Return all rules that a user has in a namespace, including those of cluster roles."""
        # The same binding may name a user twice, by name and by group; its rules count once.
        by_binding = {
            (grant.binding.metadata.namespace, grant.binding.metadata.name): grant
            for grant in self.grants(user, namespace)
        }
        return [rule for grant in by_binding.values() for rule in self._rules(grant.role).rules]

    def rules_of(self, role: Key) -> tuple[Rule, ...] | None:
        """Return the rules of a role, None if it does not exist or cannot be read."""
        rules = self._rules(role)
        return None if rules is NO_RULES else rules.rules

    def missing(self, user: User, namespace: str) -> list[str]:
        """Return the messages about roles that are bound to a user and do not exist."""
        absent = (
            grant.role
            for grant in self.grants(user, namespace)
            if self._store.get(grant.role) is None
        )
        return list(dict.fromkeys(not_found(role) for role in absent))

    def _rules(self, role: Key) -> RuleSet:
        record = self._store.get(role)
        if record is None:
            self._compiled.pop(role, None)
            return NO_RULES
        compiled = self._compiled.get(role)
        # Every write stores a new record, so the same one has the same rules.
        if compiled is not None and compiled[0] is record:
            return compiled[1]
        rules = NO_RULES
        with self._store.damage.skip_unreadable(record):
            rules = RuleSet(msgspec.json.decode(record.body, type=_Role).rules or ())
        self._compiled[role] = record, rules
        return rules

    def _current(self) -> _Index:
        latest = self._store.latest(BINDINGS), self._store.latest(CLUSTER_BINDINGS)
        if latest != self._index_revisions:
            self._index, self._index_revisions = self._build_index(), latest
        return self._index

    def _build_index(self) -> _Index:
        index: _Index = {}
        decoded, self._decoded = self._decoded, {}
        for record in (*self._store.list(CLUSTER_BINDINGS), *self._store.list(BINDINGS)):
            cached = decoded.get(record.key)
            unchanged = cached is not None and cached[0] is record
            binding = cached[1] if cached and unchanged else self._binding(record)
            self._decoded[record.key] = record, binding
            if binding is not None:
                _add_grants(index, binding, record.key.namespace)
        return index

    def _binding(self, record: Record) -> _Binding | None:
        """Return a decoded binding; one that cannot be read grants nothing and does not affect others."""
        with self._store.damage.skip_unreadable(record):
            return msgspec.json.decode(record.body, type=_Binding)
        return None


def role_key(reference: RoleRef, namespace: str) -> Key:
    """Return the key of the role that a binding in a namespace refers to."""
    if reference.kind == "ClusterRole":
        return Key(CLUSTER_ROLES, "", reference.name)
    return Key(ROLES, namespace, reference.name)


def not_found(role: Key) -> str:
    """Return the message about a role that does not exist."""
    kind = "role" if role.resource == ROLES else "clusterrole"
    return f"{kind}.{GROUP} {quoted(role.name)} not found"


def _add_grants(index: _Index, binding: _Binding, namespace: str) -> None:
    role = role_key(binding.role_ref, namespace)
    added: set[tuple[str, str]] = set()
    for subject in binding.subjects or ():
        key = _subject_key(subject, namespace)
        if key is not None and key not in added:
            added.add(key)
            index.setdefault((namespace, *key), []).append(Grant(binding, subject, role))


def _subject_key(subject: _Subject, namespace: str) -> tuple[str, str] | None:
    if subject.kind in {_USER, _GROUP}:
        return subject.kind, subject.name
    home = subject.namespace or namespace
    if subject.kind != "ServiceAccount" or not home:
        return None
    return _USER, users.account_name(home, subject.name)


def _subject_text(subject: _Subject, namespace: str) -> str:
    if subject.kind != "ServiceAccount":
        return f"{subject.kind} {quoted(subject.name)}"
    return f"{subject.kind} {quoted(f'{subject.name}/{subject.namespace or namespace}')}"
