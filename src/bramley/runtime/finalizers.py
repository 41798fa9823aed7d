"""Finalizers belong to the runtime: put on before a reconciler touches the world, taken off after it let go.

Both writes carry the version they are based on, because a merge patch replaces the whole list and must not drop the
finalizer that somebody else put there meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bramley.api.meta import K


class Patcher(Protocol):
    """Merges patches into objects."""

    async def merge_patch(
        self,
        kind: type[K],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        uid: str | None = None,
    ) -> K:
        """Merge the patch into the object; with a version or uid, only into exactly that one."""
        ...


async def add(kube: Patcher, thing: K, finalizer: str) -> K:
    """Put the finalizer on the object and return it as it is then."""
    if finalizer in thing.metadata.finalizers:
        return thing
    return await _write(kube, thing, [*thing.metadata.finalizers, finalizer])


async def remove(kube: Patcher, thing: K, finalizer: str) -> None:
    """Take the finalizer off the object, which may end its life."""
    left = [name for name in thing.metadata.finalizers if name != finalizer]
    if left != thing.metadata.finalizers:
        await _write(kube, thing, left)


async def _write(kube: Patcher, thing: K, finalizers: list[str]) -> K:
    metadata = thing.metadata
    return await kube.merge_patch(
        type(thing),
        metadata.name,
        {"metadata": {"finalizers": finalizers}},
        namespace=metadata.namespace,
        resource_version=metadata.resource_version,
        uid=metadata.uid,
    )
