"""Whose is it: objects that a selector finds belong to one controller at a time, by a reference that they carry.

What matches and belongs to nobody is adopted, what does not match any more is released; what belongs to another is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic

import msgspec

from bramley.api.label_selectors import LabelSelector, matches
from bramley.api.meta import K, Object, OwnerReference
from bramley.base import errors
from bramley.runtime.writes import FencedKube


@dataclass(frozen=True, slots=True)
class Claim(Generic[K]):
    """What is ours, what we would adopt and what we let go."""

    ours: list[K] = field(default_factory=list)
    adopt: list[K] = field(default_factory=list)
    release: list[K] = field(default_factory=list)


def controller_of(thing: Object) -> OwnerReference | None:
    """Return the reference to the controller of an object, if it has one."""
    return next((ref for ref in thing.metadata.owner_references if ref.controller), None)


def decide(owner: Object, selector: LabelSelector, things: Iterable[K]) -> Claim[K]:
    """Return how the things stand to an owner with this selector."""
    claim: Claim[K] = Claim()
    for thing in things:
        controller = controller_of(thing)
        fits = matches(selector, thing.metadata.labels)
        if controller is None:
            if fits and not owner.deleting and not thing.deleting:
                claim.adopt.append(thing)
        elif controller.uid == owner.uid:
            # One that ends keeps what it has, so that garbage collection can take it along.
            (claim.ours if fits or owner.deleting else claim.release).append(thing)
    return claim


async def settle(kube: FencedKube, owner: Object, claim: Claim[K]) -> list[K]:
    """Adopt and release; return what is ours then."""
    for thing in claim.release:
        left = [ref for ref in thing.metadata.owner_references if ref.uid != owner.uid]
        with suppress(errors.NotFound, errors.Conflict):
            await _set_owners(kube, thing, left)
    if not claim.adopt or not await _still_lives(kube, owner):
        return claim.ours
    adopted: list[K] = []
    for thing in claim.adopt:
        owners = [*thing.metadata.owner_references, reference_to(owner)]
        with suppress(errors.NotFound):
            adopted.append(await _set_owners(kube, thing, owners))
    return [*claim.ours, *adopted]


async def _still_lives(kube: FencedKube, owner: Object) -> bool:
    """Ask the API once more before anything is adopted: the cache may not know yet that the owner ends."""
    try:
        live = await kube.get(type(owner), owner.name, namespace=owner.namespace)
    except errors.NotFound:
        return False
    return live.uid == owner.uid and not live.deleting


async def _set_owners(kube: FencedKube, thing: K, owners: list[OwnerReference]) -> K:
    meta = thing.metadata
    patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(ref) for ref in owners]}}
    return await kube.merge_patch(
        type(thing),
        meta.name,
        patch,
        namespace=meta.namespace,
        resource_version=meta.resource_version,
        uid=meta.uid,
    )


def reference_to(owner: Object) -> OwnerReference:
    """Return the reference by which an owner controls what it made."""
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def owner_wire(owner: Object) -> Mapping[str, Any]:
    """Return that reference as plain JSON values."""
    wire: Mapping[str, Any] = msgspec.to_builtins(reference_to(owner))
    return wire
