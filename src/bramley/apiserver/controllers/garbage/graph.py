"""Who owns whom, as last seen, and who has to be looked at when that changes. Pure; it deletes nothing and asks nobody.

Only uids count here: names come again, uids never do. Being absent from the graph proves nothing, since a kind may not be
followed or an event may be on its way, so every verdict is taken by asking the API.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bramley.api.meta import OwnerReference
from bramley.apiserver.controllers.discovery import Thin

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


def is_ending(thing: Thin) -> bool:
    """Tell whether its deletion was asked for."""
    return thing.metadata.deletion_timestamp is not None


def waits_for_dependents(thing: Thin) -> bool:
    """Tell whether it is ending and stays until its dependents are gone."""
    return is_ending(thing) and FOREGROUND in thing.metadata.finalizers


def orphans_dependents(thing: Thin) -> bool:
    """Tell whether it is ending and its dependents shall outlive it."""
    return is_ending(thing) and ORPHAN in thing.metadata.finalizers


@dataclass(slots=True)
class Wakes:
    """Who has to be looked at: for deletion, for orphaning, and who names an owner of another namespace."""

    look: dict[str, None] = field(default_factory=dict)
    orphan: dict[str, None] = field(default_factory=dict)
    misplaced: list[tuple[Thin, OwnerReference]] = field(default_factory=list)


@dataclass(slots=True)
class Graph:
    """Objects by uid, and the uids of the dependents of each owner."""

    things: dict[str, Thin] = field(default_factory=dict)
    _dependents: dict[str, dict[str, None]] = field(default_factory=dict)

    def dependents(self, uid: str) -> list[Thin]:
        """Return the objects that name this one as an owner."""
        found = (self.things.get(each) for each in self._dependents.get(uid, ()))
        return [each for each in found if each is not None]

    def blocking(self, uid: str) -> list[Thin]:
        """Return the dependents that an owner which ends in the foreground has to wait for."""
        return [
            each
            for each in self.dependents(uid)
            if any(
                ref.uid == uid and ref.block_owner_deletion
                for ref in each.metadata.owner_references
            )
        ]

    def put(self, thing: Thin) -> Wakes:
        """Take over the state of an object; return who has to be looked at now."""
        wakes = Wakes()
        old = self.things.get(thing.uid)
        self.things[thing.uid] = thing
        self._link(old, thing)
        self._wake_for_owners(old, thing, wakes)
        if old is None:
            self._wake_misplaced_dependents(thing, wakes)
        self._wake_for_transitions(old, thing, wakes)
        return wakes

    def remove(self, uid: str) -> Wakes:
        """Forget an object; its dependents, and owners that waited for it, have to be looked at now."""
        wakes = Wakes()
        old = self.things.pop(uid, None)
        if old is None:
            return wakes
        self._link(old, None)
        wakes.look |= dict.fromkeys(self._dependents.get(uid, ()))
        for ref in old.metadata.owner_references:
            self._wake_waiting(ref.uid, wakes)
        return wakes

    def _link(self, old: Thin | None, new: Thin | None) -> None:
        before = {ref.uid for ref in old.metadata.owner_references} if old else set()
        after = {ref.uid for ref in new.metadata.owner_references} if new else set()
        uid = new.uid if new is not None else old.uid if old is not None else ""
        for owner in before - after:
            linked = self._dependents.get(owner, {})
            linked.pop(uid, None)
            if not linked:
                self._dependents.pop(owner, None)
        for owner in after - before:
            self._dependents.setdefault(owner, {})[uid] = None

    def _wake_for_owners(self, old: Thin | None, new: Thin, wakes: Wakes) -> None:
        """Look at the object when an owner of it is unknown or ending, and at owners that it waits no longer for."""
        before = {ref.uid: ref for ref in old.metadata.owner_references} if old else {}
        after = {ref.uid: ref for ref in new.metadata.owner_references}
        for uid, ref in after.items():
            if uid not in before and self._is_doubtful(new, ref, wakes):
                wakes.look[new.uid] = None
        for uid, ref in before.items():
            still = after.get(uid)
            if ref.block_owner_deletion and (still is None or not still.block_owner_deletion):
                self._wake_waiting(uid, wakes)

    def _is_doubtful(self, thing: Thin, ref: OwnerReference, wakes: Wakes) -> bool:
        owner = self.things.get(ref.uid)
        if owner is None:
            return True
        if _is_misplaced(thing, owner):
            wakes.misplaced.append((thing, ref))
            return True
        named = (ref.kind, ref.name, ref.api_version.rpartition("/")[0])
        resource = owner.resource
        is_other = named != (resource.kind, owner.metadata.name, resource.group)
        return is_other or waits_for_dependents(owner)

    def _wake_misplaced_dependents(self, owner: Thin, wakes: Wakes) -> None:
        for each in self.dependents(owner.uid):
            if _is_misplaced(each, owner):
                refs = (ref for ref in each.metadata.owner_references if ref.uid == owner.uid)
                wakes.misplaced += [(each, ref) for ref in refs]
                wakes.look[each.uid] = None

    def _wake_for_transitions(self, old: Thin | None, new: Thin, wakes: Wakes) -> None:
        if waits_for_dependents(new) and (old is None or not waits_for_dependents(old)):
            wakes.look[new.uid] = None
            wakes.look |= dict.fromkeys(self._dependents.get(new.uid, ()))
        if orphans_dependents(new) and (old is None or not orphans_dependents(old)):
            wakes.orphan[new.uid] = None

    def _wake_waiting(self, uid: str, wakes: Wakes) -> None:
        owner = self.things.get(uid)
        if owner is not None and waits_for_dependents(owner):
            wakes.look[uid] = None


def _is_misplaced(thing: Thin, owner: Thin) -> bool:
    """Tell whether the owner lives in a namespace that is not the dependent's."""
    place = owner.metadata.namespace
    return bool(place) and place != thing.metadata.namespace
