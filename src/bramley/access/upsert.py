"""Create or update one object; repeating it after an interruption does no harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from bramley.api.meta import K, Object
from bramley.base import errors


class Client(Protocol):
    """Reads, creates and patches objects."""

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return the current object; raise NotFound when there is none."""
        ...

    async def create(self, item: K, *, namespace: str | None = None) -> K:
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


async def create_or_update(kube: Client, desired: K, *, current: K | None = None) -> K:
    """Bring the object to its desired state and return it; fields that the desired state does not mention stay."""
    existing = current or await find(kube, type(desired), desired.name, namespace=desired.namespace)
    if existing is None:
        try:
            return await kube.create(desired)
        except errors.AlreadyExists:
            # A concurrent run created it after the read above.
            existing = await kube.get(type(desired), desired.name, namespace=desired.namespace)
    change = difference(existing, desired)
    if not change:
        return existing
    return await kube.merge_patch(
        type(desired), desired.name, change, namespace=desired.namespace, uid=existing.uid
    )


async def find(kube: Client, kind: type[K], name: str, *, namespace: str | None = None) -> K | None:
    """Return an object, or None when it does not exist."""
    try:
        return await kube.get(kind, name, namespace=namespace)
    except errors.NotFound:
        return None


def difference(current: Object, desired: Object) -> dict[str, Any]:
    """Return the merge patch from the current to the desired state; empty when nothing differs."""
    before, after = msgspec.to_builtins(current), msgspec.to_builtins(desired)
    desired_metadata, current_metadata = after.get("metadata", {}), before.get("metadata", {})
    metadata = {field: desired_metadata[field] for field in _METADATA if field in desired_metadata}
    missing = {
        field: value
        for field, value in metadata.items()
        if not _covers(current_metadata.get(field), value)
    }
    change = {
        field: value
        for field, value in after.items()
        if field != "metadata" and not _covers(before.get(field), value)
    }
    return {**change, **({"metadata": missing} if missing else {})}


def _covers(current: Any, desired: Any) -> bool:
    """Return whether the current value contains the desired one; the server adds defaults to mappings, not to lists."""
    if isinstance(desired, Mapping):
        return isinstance(current, Mapping) and all(
            name in current and _covers(current[name], value) for name, value in desired.items()
        )
    return bool(current == desired)
