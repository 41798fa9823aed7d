"""Controller references: an object that a selector matches belongs to at most one controller, named by its owner reference.

Matching objects without a controller are adopted; owned objects that no longer match are released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic

import msgspec

from bramley.api.label_selectors import LabelSelector, matches
from bramley.api.meta import K, Object, OwnerReference
from bramley.apiserver.controllers.objects import patch_object
from bramley.base import errors
from bramley.runtime.cache import Cache
from bramley.runtime.writes import FencedKube


@dataclass(frozen=True, slots=True)
class Claim(Generic[K]):
    """The objects that an owner has, will adopt and will release."""

    owned: list[K] = field(default_factory=list)
    adopt: list[K] = field(default_factory=list)
    release: list[K] = field(default_factory=list)


def controller_of(item: Object) -> OwnerReference | None:
    """Return the reference to an object's controller, if there is one."""
    return next((ref for ref in item.metadata.owner_references if ref.controller), None)


def index_by_controller(cache: Cache[K], by_uid: str, orphans: str) -> None:
    """Index objects by the uid of their controller, and those without one by namespace."""

    def controllers(item: K) -> list[str]:
        ref = controller_of(item)
        return [] if ref is None else [ref.uid]

    cache.index(by_uid, controllers)
    cache.index(orphans, lambda item: [item.namespace] if controller_of(item) is None else [])


def claim_objects(owner: Object, selector: LabelSelector, objects: Iterable[K]) -> Claim[K]:
    """Return which of the objects an owner with this selector has, adopts and releases."""
    claim: Claim[K] = Claim()
    for item in objects:
        controller = controller_of(item)
        is_match = matches(selector, item.metadata.labels)
        if controller is None:
            if is_match and not owner.deleting and not item.deleting:
                claim.adopt.append(item)
        elif controller.uid == owner.uid:
            # An owner that is being deleted releases nothing: garbage collection deletes its dependents.
            (claim.owned if is_match or owner.deleting else claim.release).append(item)
    return claim


async def adopt_and_release(kube: FencedKube, owner: Object, claim: Claim[K]) -> list[K]:
    """Adopt and release; return what the owner has then."""
    for item in claim.release:
        remaining = [ref for ref in item.metadata.owner_references if ref.uid != owner.uid]
        with suppress(errors.NotFound, errors.Conflict):
            await _set_owners(kube, item, remaining)
    if not claim.adopt or not await _still_exists(kube, owner):
        return claim.owned
    adopted: list[K] = []
    for item in claim.adopt:
        owners = [*item.metadata.owner_references, new_controller_ref(owner)]
        with suppress(errors.NotFound):
            adopted.append(await _set_owners(kube, item, owners))
    return [*claim.owned, *adopted]


async def _still_exists(kube: FencedKube, owner: Object) -> bool:
    """Read the owner again before anything is adopted: the cache may not show yet that it is being deleted."""
    try:
        live = await kube.get(type(owner), owner.name, namespace=owner.namespace)
    except errors.NotFound:
        return False
    return live.uid == owner.uid and not live.deleting


async def _set_owners(kube: FencedKube, item: K, owners: list[OwnerReference]) -> K:
    patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(ref) for ref in owners]}}
    return await patch_object(kube, item, patch)


def new_controller_ref(owner: Object) -> OwnerReference:
    """Return a controller reference to an owner."""
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def controller_ref_wire(owner: Object) -> Mapping[str, Any]:
    """Return a controller reference to an owner as JSON."""
    wire: Mapping[str, Any] = msgspec.to_builtins(new_controller_ref(owner))
    return wire
