"""The client that reconcilers write with: each write is fenced by the lease and noted for the read-your-writes guard.

Before a write it asks whether this process still leads, so a process that slept past its lease acts no more; after a write it
notes the new version, so the key is not reconciled again on a cache that has not seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bramley.api.meta import K, Object
from bramley.runtime.fresh import Freshness
from bramley.runtime.keys import Key
from bramley.runtime.source import Kube


class FencedKube:
    """Reads and writes like the client it wraps, as long as `check` does not raise."""

    def __init__(self, kube: Kube, *, freshness: Freshness, check: Callable[[], None]) -> None:
        self._kube = kube
        self._freshness = freshness
        self._check = check

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return the object as it is now."""
        return await self._kube.get(kind, name, namespace=namespace)

    async def create(self, thing: K, *, namespace: str | None = None) -> K:
        """Create the object and return it as stored."""
        self._check()
        return self._noted(await self._kube.create(thing, namespace=namespace))

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
        self._check()
        patched = await self._kube.merge_patch(
            kind,
            name,
            patch,
            namespace=namespace,
            subresource=subresource,
            resource_version=resource_version,
            uid=uid,
        )
        return self._noted(patched)

    async def json_patch(
        self,
        kind: type[K],
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        """Change the object by steps that all happen or none."""
        self._check()
        patched = await self._kube.json_patch(
            kind, name, operations, namespace=namespace, subresource=subresource
        )
        return self._noted(patched)

    async def apply(
        self,
        kind: type[K],
        name: str,
        body: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        """Own exactly these fields of the object, creating it if need be."""
        self._check()
        applied = await self._kube.apply(
            kind,
            name,
            body,
            manager=manager,
            force=force,
            namespace=namespace,
            subresource=subresource,
        )
        return self._noted(applied)

    async def delete(
        self,
        thing: Object,
        *,
        resource_version: str | None = None,
        grace: timedelta | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete exactly this object, never one that took its name since."""
        self._check()
        kind, metadata = type(thing), thing.metadata
        await self._kube.delete(
            kind,
            metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=resource_version,
            grace=grace,
            propagation=propagation,
        )
        key = Key(metadata.namespace or "", metadata.name)
        self._freshness.deleted(kind, key, metadata.uid)

    def note(self, thing: K) -> K:
        """Note an object that was written for this key by other means, such as from plain JSON values."""
        return self._noted(thing)

    def _noted(self, thing: K) -> K:
        self._freshness.wrote(thing)
        return thing
