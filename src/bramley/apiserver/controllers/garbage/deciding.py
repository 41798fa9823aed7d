"""What follows for one object from what the API says of its owners. Pure.

An object stays while one owner is there; references to those that are gone are then dropped. With no owner left it goes, in
the way that its own finalizers or its waiting owner ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from bramley.api.meta import OwnerReference
from bramley.apiserver.controllers.discovery import Thin
from bramley.apiserver.controllers.garbage.graph import FOREGROUND, ORPHAN, waits_for_dependents


class Owner(Enum):
    """What became of an owner."""

    SOLID = "there"
    ABSENT = "gone, or another object has its name"
    WAITING = "going, once its dependents are gone"


@dataclass(frozen=True, slots=True)
class Stay:
    """Leave the object alone."""


@dataclass(frozen=True, slots=True)
class DropOwners:
    """Keep the object, without the owners of these uids."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object; unblock its owners first when it may be part of a circle."""

    propagation: Literal["Background", "Foreground", "Orphan"]
    unblock: bool = False


Verdict = Stay | DropOwners | Delete


def decide(thing: Thin, owners: Mapping[str, Owner], dependents: Sequence[Thin]) -> Verdict:
    """Return what shall happen to an object with these owners and dependents."""
    by_state: dict[Owner, set[str]] = {state: set() for state in Owner}
    for uid, state in owners.items():
        by_state[state].add(uid)
    if not owners:
        return Stay()
    if by_state[Owner.SOLID]:
        gone = by_state[Owner.ABSENT] | by_state[Owner.WAITING]
        return DropOwners(frozenset(gone)) if gone else Stay()
    if by_state[Owner.WAITING] and dependents:
        # A dependent that waits for its own dependents may wait for this one: then nobody would ever begin.
        is_circle = any(waits_for_dependents(each) for each in dependents)
        return Delete("Foreground", unblock=is_circle)
    return Delete(_propagation(thing))


def _propagation(thing: Thin) -> Literal["Background", "Foreground", "Orphan"]:
    if ORPHAN in thing.metadata.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in thing.metadata.finalizers else "Background"


def without(thing: Thin, uids: frozenset[str]) -> list[OwnerReference]:
    """Return its owner references but for these."""
    return [ref for ref in thing.metadata.owner_references if ref.uid not in uids]
