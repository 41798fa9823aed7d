"""Bringing one object to what is wanted, so that repeating it after a cut does no harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from bramley.api.meta import K, Object
from bramley.base import errors


class Hands(Protocol):
    """Looks at objects, and writes what is missing."""

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return the object as it is now; raise NotFound when there is none."""
        ...

    async def create(self, thing: K, *, namespace: str | None = None) -> K:
        """Create the object and return it as stored."""
        ...

    async def merge_patch(
        self,
        kind: type[K],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        uid: str | None = None,
    ) -> K:
        """Merge the patch into exactly the object with this uid."""
        ...


_METADATA = ("labels", "annotations", "ownerReferences")


async def present(kube: Hands, wanted: K, *, current: K | None = None) -> K:
    """Make the object as it is wanted and return it; fields that are not wanted otherwise stay."""
    found = current or await find(kube, type(wanted), wanted.name, namespace=wanted.namespace)
    if found is None:
        try:
            return await kube.create(wanted)
        except errors.AlreadyExists:
            found = await kube.get(type(wanted), wanted.name, namespace=wanted.namespace)
    change = difference(found, wanted)
    if not change:
        return found
    return await kube.merge_patch(
        type(wanted), wanted.name, change, namespace=wanted.namespace, uid=found.uid
    )


async def find(kube: Hands, kind: type[K], name: str, *, namespace: str | None = None) -> K | None:
    """Return an object, or None when there is none."""
    try:
        return await kube.get(kind, name, namespace=namespace)
    except errors.NotFound:
        return None


def difference(current: Object, wanted: Object) -> dict[str, Any]:
    """Return the merge patch that leads from one state to the other; empty when nothing is missing."""
    before, after = msgspec.to_builtins(current), msgspec.to_builtins(wanted)
    asked, now = after.get("metadata", {}), before.get("metadata", {})
    metadata = {field: asked[field] for field in _METADATA if field in asked}
    missing = {
        field: value for field, value in metadata.items() if not _covers(now.get(field), value)
    }
    change = {
        field: value
        for field, value in after.items()
        if field != "metadata" and not _covers(before.get(field), value)
    }
    return {**change, **({"metadata": missing} if missing else {})}


def _covers(current: Any, wanted: Any) -> bool:
    """Tell whether what is wanted is there; a server adds defaults to objects, and a list is as it is."""
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(
            name in current and _covers(current[name], value) for name, value in wanted.items()
        )
    return bool(current == wanted)
