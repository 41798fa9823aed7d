"""The client that reconcilers write with: each write is fenced by the lease and recorded for the read-your-writes guard.

Before a write it checks that this process still leads, so a process that was suspended past its lease writes nothing. Each
write made while a key is reconciled is recorded under that key. Before the key is reconciled again, the caches of the written
kinds must show those writes; otherwise a controller would create the same child twice because of its own stale cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bramley.api.meta import K, Object
from bramley.runtime.client import Kube
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key


class WriteScope:
    """The key on whose behalf a worker writes at present."""

    __slots__ = ("owner",)

    def __init__(self, owner: Hashable = None) -> None:
        self.owner = owner


_NO_SCOPE = WriteScope()
_scope: contextvars.ContextVar[WriteScope] = contextvars.ContextVar(
    "write_scope", default=_NO_SCOPE
)


@dataclass(slots=True)
class _Writes:
    """The writes of one key that one informer should observe: the newest version, and the uids of deleted objects.

    Those of `gone` had no finalizers left.
    """

    version: int = 0
    lists: int = 0
    deleted: dict[Key, str] = field(default_factory=dict)
    gone: dict[Key, str] = field(default_factory=dict)

    def observed_by(self, informer: Informer[Any]) -> bool:
        updater = informer.updater
        # Of two whole lists since the write, the second was requested after it. If even that one is older, the write is
        # lost (the server was restored from a backup), and no cache will ever reach its version.
        if updater.version < self.version and updater.lists < self.lists + 2:
            return False
        if any(_find(informer, key, uid) is not None for key, uid in self.gone.items()):
            return False
        found = (_find(informer, key, uid) for key, uid in self.deleted.items())
        # An object with finalizers stays; its deletionTimestamp shows that the deletion was observed.
        return all(obj is None or obj.deleting for obj in found)


def _find(informer: Informer[Any], key: Key, uid: str) -> Object | None:
    obj: Object | None = informer.cache.find(key)
    return obj if obj is not None and obj.uid == uid else None


class ReadYourWrites:
    """Records the writes of each key and waits for the caches to show them."""

    def __init__(self, *, timeout: timedelta = timedelta(seconds=3)) -> None:
        self._timeout = timeout
        self._informers: dict[type[Object], list[Informer[Any]]] = {}
        self._written: dict[Hashable, dict[Informer[Any], _Writes]] = {}

    def add_informer(self, informer: Informer[Any]) -> None:
        """Compare this informer's cache with what is written to its kind."""
        self._informers.setdefault(informer.kind, []).append(informer)

    @contextlib.contextmanager
    def scope(self) -> Iterator[WriteScope]:
        """Record the writes made inside, also by callees, under the owner that the scope has at that time."""
        scope = WriteScope()
        token = _scope.set(scope)
        try:
            yield scope
        finally:
            _scope.reset(token)

    def record(self, obj: Object) -> None:
        """Record that the object was written and is now at its version."""
        version = obj.metadata.resource_version
        if version.isdecimal():
            for writes in self._of_current_owner(type(obj)):
                writes.version = max(writes.version, int(version))

    def record_deletion(self, kind: type[Object], key: Key, uid: str) -> None:
        """Record that the deletion of this uid was requested."""
        for writes in self._of_current_owner(kind):
            writes.deleted[key] = uid

    def record_end(self, kind: type[Object], key: Key, uid: str) -> None:
        """Record that the last finalizer of a deleted object was removed."""
        for writes in self._of_current_owner(kind):
            writes.gone[key] = uid

    def has_written(self, owner: Hashable) -> bool:
        """Return whether the owner has writes that a cache may not show yet."""
        return owner in self._written

    async def wait_until_observed(self, owner: Hashable) -> bool:
        """Wait, up to the timeout, until every cache shows the owner's writes; return whether they do."""
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                while (stale := self._find_stale(owner)) is not None:
                    # No change is missed: nothing else runs between the check and the registration of the waiter.
                    await stale.updater.changed()
        except TimeoutError:
            # Perhaps an event was lost; a list shows the write, or proves that the server lost it.
            if stale is not None:
                stale.refresh()
            return False
        self.forget(owner)
        return True

    def forget(self, owner: Hashable) -> None:
        """Drop the owner's writes."""
        self._written.pop(owner, None)

    def _of_current_owner(self, kind: type[Object]) -> Iterator[_Writes]:
        owner = _scope.get().owner
        if owner is None:
            return
        for informer in self._informers.get(kind, ()):
            writes = self._written.setdefault(owner, {}).setdefault(informer, _Writes())
            # Set again by each write: only lists requested after the last one are certain to show it.
            writes.lists = informer.updater.lists
            yield writes

    def _find_stale(self, owner: Hashable) -> Informer[Any] | None:
        written = self._written.get(owner, {})
        return next((key for key, each in written.items() if not each.observed_by(key)), None)


class FencedKube:
    """Reads and writes like the client it wraps, as long as `check` does not raise."""

    def __init__(self, kube: Kube, *, writes: ReadYourWrites, check: Callable[[], None]) -> None:
        self._kube = kube
        self.writes = writes
        self.check = check

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return the object as it is now."""
        return await self._kube.get(kind, name, namespace=namespace)

    async def create(self, obj: K, *, namespace: str | None = None) -> K:
        """Create the object and return it as stored."""
        self.check()
        return self._recorded(await self._kube.create(obj, namespace=namespace))

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
        self.check()
        patched = await self._kube.merge_patch(
            kind,
            name,
            patch,
            namespace=namespace,
            subresource=subresource,
            resource_version=resource_version,
            uid=uid,
        )
        return self._recorded(patched)

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
        """Apply server-side: own exactly these fields of the object, creating it if necessary."""
        self.check()
        applied = await self._kube.apply(
            kind,
            name,
            body,
            manager=manager,
            force=force,
            namespace=namespace,
            subresource=subresource,
        )
        return self._recorded(applied)

    async def delete(
        self,
        obj: Object,
        *,
        resource_version: str | None = None,
        grace: timedelta | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete exactly this object, never a newer one of the same name."""
        self.check()
        kind, metadata = type(obj), obj.metadata
        await self._kube.delete(
            kind,
            metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=resource_version,
            grace=grace,
            propagation=propagation,
        )
        # Only after the server accepted it: a refused deletion would never be observed.
        key = Key(metadata.namespace or "", metadata.name)
        self.writes.record_deletion(kind, key, metadata.uid)

    async def add_finalizer(self, obj: K, finalizer: str) -> K:
        """Add the finalizer and return the object as stored."""
        if finalizer in obj.metadata.finalizers:
            return obj
        return await self._patch_finalizers(obj, [*obj.metadata.finalizers, finalizer])

    async def remove_finalizer(self, obj: K, finalizer: str) -> None:
        """Remove the finalizer; the server deletes the object if it was the last one of an object being deleted."""
        remaining = [name for name in obj.metadata.finalizers if name != finalizer]
        if remaining != obj.metadata.finalizers:
            await self._patch_finalizers(obj, remaining)
            if obj.deleting and not remaining:
                # The version in the response is one before the deletion.
                key = Key(obj.metadata.namespace or "", obj.metadata.name)
                self.writes.record_end(type(obj), key, obj.uid)

    def record_write(self, obj: K) -> K:
        """Record an object that was written for this key by other means, such as from plain JSON values."""
        return self._recorded(obj)

    async def _patch_finalizers(self, obj: K, finalizers: list[str]) -> K:
        metadata = obj.metadata
        return await self.merge_patch(
            type(obj),
            metadata.name,
            {"metadata": {"finalizers": finalizers}},
            namespace=metadata.namespace,
            # A merge patch replaces the whole list: without the version it would drop a finalizer added meanwhile.
            resource_version=metadata.resource_version,
            uid=metadata.uid,
        )

    def _recorded(self, obj: K) -> K:
        self.writes.record(obj)
        return obj
