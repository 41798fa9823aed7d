"""RBAC over the store: who is bound to which roles, and whether one of these allows what is asked.

Bindings are indexed by subject whenever one of them changed, roles are compiled once per version; a question then costs a
few look-ups per binding of its user, microseconds in all. Only durable objects count.
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
    """Which role a binding gives."""

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
    """A role that a subject has, and the binding that gives it."""

    binding: _Binding
    subject: _Subject
    role: Key

    def __str__(self) -> str:
        named = self.binding.metadata
        name = f"{named.name}/{named.namespace}" if named.namespace else named.name
        reference = self.binding.role_ref
        return (
            f"{self.binding.kind} {quoted(name)} of {reference.kind} {quoted(reference.name)} "
            f"to {_told(self.subject, named.namespace)}"
        )


# Roles by who has them: the namespace ("" for everywhere) and the subject.
_Index = dict[tuple[str, str, str], list[Grant]]
_USER, _GROUP = "User", "Group"


class Rbac:
    """Decides by the roles and bindings of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index: _Index = {}
        self._index_of = (-1, -1)
        self._decoded: dict[Key, tuple[Record, _Binding | None]] = {}
        self._compiled: dict[Key, tuple[Record, RuleSet]] = {}

    def allows(self, asked: Attributes) -> Grant | None:
        """Return what allows it, None if nothing does."""
        for grant in self.grants(asked.user, asked.namespace):
            if self._rules(grant.role).allow(asked):
                return grant
        return None

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """Yield the roles that a user has everywhere, and those in a namespace."""
        index = self._current()
        for scope in ("", namespace) if namespace else ("",):
            yield from index.get((scope, _USER, user.name), ())
            for group in user.groups:
                yield from index.get((scope, _GROUP, group), ())

    def rules_for(self, user: User, namespace: str) -> list[Rule]:
        """Return all rules that a user has in a namespace, those of cluster-wide roles among them."""
        # The same binding may name a user twice, by name and by group; its rules count once.
        found = {
            (grant.binding.metadata.namespace, grant.binding.metadata.name): grant
            for grant in self.grants(user, namespace)
        }
        return [rule for grant in found.values() for rule in self._rules(grant.role).rules]

    def rules_of(self, role: Key) -> tuple[Rule, ...] | None:
        """Return the rules of a role, None if there is none that can be read."""
        found = self._rules(role)
        return None if found is NO_RULES else found.rules

    def missing(self, user: User, namespace: str) -> list[str]:
        """Return the complaints about roles that are bound to a user and do not exist."""
        gone = (
            grant.role
            for grant in self.grants(user, namespace)
            if self._store.get(grant.role) is None
        )
        return list(dict.fromkeys(not_found(role) for role in gone))

    def _rules(self, role: Key) -> RuleSet:
        record = self._store.get(role)
        if record is None:
            self._compiled.pop(role, None)
            return NO_RULES
        known = self._compiled.get(role)
        if known is not None and known[0] is record:
            return known[1]
        rules = NO_RULES
        with self._store.damage.skip_unreadable(record):
            rules = RuleSet(msgspec.json.decode(record.body, type=_Role).rules or ())
        self._compiled[role] = record, rules
        return rules

    def _current(self) -> _Index:
        latest = self._store.latest(BINDINGS), self._store.latest(CLUSTER_BINDINGS)
        if latest != self._index_of:
            self._index, self._index_of = self._built(), latest
        return self._index

    def _built(self) -> _Index:
        index: _Index = {}
        known, self._decoded = self._decoded, {}
        for record in (*self._store.list(CLUSTER_BINDINGS), *self._store.list(BINDINGS)):
            before = known.get(record.key)
            same = before is not None and before[0] is record
            binding = before[1] if before and same else self._binding(record)
            self._decoded[record.key] = record, binding
            if binding is not None:
                _enter(index, binding, record.key.namespace)
        return index

    def _binding(self, record: Record) -> _Binding | None:
        """Return what a binding says; one that cannot be read gives nobody anything, and takes nothing from others."""
        with self._store.damage.skip_unreadable(record):
            return msgspec.json.decode(record.body, type=_Binding)
        return None


def role_key(reference: RoleRef, namespace: str) -> Key:
    """Return the key of the role that a binding of a namespace gives."""
    if reference.kind == "ClusterRole":
        return Key(CLUSTER_ROLES, "", reference.name)
    return Key(ROLES, namespace, reference.name)


def not_found(role: Key) -> str:
    """Return the complaint about a role that does not exist."""
    kind = "role" if role.resource == ROLES else "clusterrole"
    return f"{kind}.{GROUP} {quoted(role.name)} not found"


def _enter(index: _Index, binding: _Binding, namespace: str) -> None:
    role = role_key(binding.role_ref, namespace)
    entered: set[tuple[str, str]] = set()
    for subject in binding.subjects or ():
        who = _who(subject, namespace)
        if who is not None and who not in entered:
            entered.add(who)
            index.setdefault((namespace, *who), []).append(Grant(binding, subject, role))


def _who(subject: _Subject, namespace: str) -> tuple[str, str] | None:
    if subject.kind in {_USER, _GROUP}:
        return subject.kind, subject.name
    home = subject.namespace or namespace
    if subject.kind != "ServiceAccount" or not home:
        return None
    return _USER, users.account_name(home, subject.name)


def _told(subject: _Subject, namespace: str) -> str:
    if subject.kind != "ServiceAccount":
        return f"{subject.kind} {quoted(subject.name)}"
    return f"{subject.kind} {quoted(f'{subject.name}/{subject.namespace or namespace}')}"
