"""The cache of one kind with its indexes, and the updater that keeps it equal to the server.

Objects are frozen and handed out as they are; only the informer writes, through its `CacheUpdater`. An index maps an object to
the values it is found by and is updated with each change, so a lookup costs what it finds, not what the cache holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic

from bramley.api.meta import K
from bramley.base import errors
from bramley.kube.codec import Listing
from bramley.kube.watch_stream import WatchEvent
from bramley.runtime.keys import Key

IndexFunction = Callable[[K], Iterable[Hashable]]
Handler = Callable[[Key, K | None, K | None], None]

# Skips the named tuple's own constructor, which takes longer than the rest of handling an event.
_new = tuple.__new__


class _Index(Generic[K]):
    """Finds objects by the values that one function returns."""

    __slots__ = ("_buckets", "_values")

    def __init__(self, values: IndexFunction[K]) -> None:
        self._values = values
        self._buckets: dict[Hashable, dict[Key, K]] = {}

    def replace(self, key: Key, old: K | None, new: K | None) -> None:
        # Old values first: both states may share a bucket, and the new state must stay in it.
        if old is not None:
            for value in self._values(old):
                self._drop(value, key)
        if new is not None:
            for value in self._values(new):
                self._buckets.setdefault(value, {})[key] = new

    def find(self, value: Hashable) -> list[K]:
        bucket = self._buckets.get(value)
        return [bucket[key] for key in sorted(bucket)] if bucket else []

    def _drop(self, value: Hashable, key: Key) -> None:
        bucket = self._buckets.get(value)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del self._buckets[value]


class Cache(Generic[K]):
    """Holds the last observed state of every object that an informer watches."""

    def __init__(self, kind: type[K]) -> None:
        self.kind = kind
        self._objects: dict[Key, K] = {}
        self._indexes: dict[str, _Index[K]] = {}
        self._sorted: list[Key] | None = None

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def index(self, name: str, values: IndexFunction[K]) -> None:
        """Add an index by the values that the function returns; it is filled from the cache at once."""
        index = self._indexes[name] = _Index(values)
        for key, obj in self._objects.items():
            index.replace(key, None, obj)

    def has_index(self, name: str) -> bool:
        """Return whether there is an index of this name; caches are shared."""
        return name in self._indexes

    def find(self, key: Key) -> K | None:
        """Return the object, or None when it is not in the cache."""
        return self._objects.get(key)

    def get(self, name: str, *, namespace: str = "") -> K:
        """Return the object; raise NotFound when it is not in the cache."""
        obj = self._objects.get(Key(namespace, name))
        if obj is None:
            raise errors.NotFound(
                f"no {self.kind.resource.kind} {Key(namespace, name)} in the cache"
            )
        return obj

    def all(self, *, namespace: str | None = None) -> list[K]:
        """Return all objects, or all of one namespace, sorted by key."""
        if self._sorted is None:
            self._sorted = sorted(self._objects)
        return [
            self._objects[key]
            for key in self._sorted
            if namespace is None or key.namespace == namespace
        ]

    def by_index(self, name: str, value: Hashable) -> list[K]:
        """Return the objects that the index of this name finds by the value, sorted by key."""
        return self._indexes[name].find(value)

    def put(self, key: Key, obj: K) -> K | None:
        """Store this state; return the previous one."""
        old = self._objects.get(key)
        self._objects[key] = obj
        # Only a new key changes the order of keys.
        if old is None:
            self._sorted = None
        if self._indexes:
            self._reindex(key, old, obj)
        return old

    def remove(self, key: Key) -> K | None:
        """Remove the object; return its last state."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._sorted = None
            self._reindex(key, old, None)
        return old

    def _reindex(self, key: Key, old: K | None, new: K | None) -> None:
        for index in self._indexes.values():
            index.replace(key, old, new)


class CacheUpdater(Generic[K]):
    """Applies watch events and lists to a cache and calls the handlers with each change.

    It uses no clock and no network, so the same events lead to the same calls. resourceVersions are compared as numbers, as
    Kubernetes permits: an event that is not newer than the cache is a duplicate and is dropped.
    """

    def __init__(self, kind: type[K]) -> None:
        self.cache = Cache(kind)
        self.version = 0
        # Pages of a list that was never finished may have shown newer objects than `version`.
        self._version_of_list = 0
        self.lists = 0
        self._handlers: list[Handler[K]] = []
        self._waiters: list[asyncio.Future[None]] = []

    def on_change(self, handler: Handler[K]) -> None:
        """Call the handler with key, old and new state of each change; None means absent."""
        self._handlers.append(handler)

    def apply(self, events: Iterable[WatchEvent[K]]) -> list[WatchEvent[K]]:
        """Apply the events; return those that could not be decoded."""
        undecodable: list[WatchEvent[K]] = []
        newest = self.version
        for event in events:
            metadata = event.object.metadata
            kind = event.type
            if kind == "UNDECODABLE" or not metadata.resource_version.isdecimal():
                # Later events advance the version past this one, so only a list can bring its object into the cache.
                undecodable.append(event)
                continue
            version = int(metadata.resource_version)
            if version <= newest:
                continue
            self.version = newest = version
            if kind == "BOOKMARK":
                continue
            key = _new(Key, (metadata.namespace or "", metadata.name))
            if kind == "DELETED":
                self._remove(key)
            else:
                self._notify_put(key, self.cache.put(key, event.object), event.object)
        # Once per batch: waiters compare versions, and an intermediate one would wake them too early.
        if self._waiters:
            self._wake_waiters()
        return undecodable

    @property
    def newest(self) -> int:
        """Return the newest version of which any object was shown."""
        return max(self.version, self._version_of_list)

    def relist(self, version: int) -> Relist[K]:
        """Start to apply a whole list of this version."""
        self._version_of_list = version
        return Relist(self, version)

    def put_listed(self, key: Key, obj: K) -> None:
        """Store the listed state of one object."""
        old = self.cache.put(key, obj)
        # A list repeats unchanged objects; handlers see only what a watch would have shown.
        if old is None or old.metadata.resource_version != obj.metadata.resource_version:
            self._notify_put(key, old, obj)

    def remove_unlisted(self, listed: set[Key]) -> None:
        """Remove the objects that a whole list did not contain."""
        for key in [key for key in self.cache if key not in listed]:
            self._remove(key)

    def finish_list(self, version: int) -> None:
        """Set the version to that of a finished list, which may be older than the one reached before."""
        self.lists += 1
        self.version = version
        self._wake_waiters()

    async def changed(self) -> None:
        """Wait until the next events or list were applied."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _notify_put(self, key: Key, old: K | None, new: K) -> None:
        if old is not None and old.metadata.uid != new.metadata.uid:
            # The deletion in between was missed; handlers that count objects must see both changes.
            self._notify(key, old, None)
            old = None
        # The body of `_notify`, without the cost of a call for each event.
        for handler in self._handlers:
            handler(key, old, new)

    def _remove(self, key: Key) -> None:
        old = self.cache.remove(key)
        if old is not None:
            self._notify(key, old, None)

    def _notify(self, key: Key, old: K | None, new: K | None) -> None:
        for handler in self._handlers:
            handler(key, old, new)

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            # A cancelled waiter stays registered until its task runs again.
            if not waiter.done():
                waiter.set_result(None)


class Relist(Generic[K]):
    """One whole list being applied to the cache: pages as they arrive, deletions at the end."""

    def __init__(self, updater: CacheUpdater[K], version: int) -> None:
        self._updater = updater
        self._version = version
        # An empty cache ends up with exactly what was listed, so the listed keys need not be remembered.
        self._listed: set[Key] | None = set() if len(updater.cache) else None
        self.unnamed = 0

    def page(self, listing: Listing[K]) -> None:
        """Apply one page; an object that could not be decoded stays as it was."""
        listed, put_listed = self._listed, self._updater.put_listed
        for obj in listing.items:
            metadata = obj.metadata
            key = _new(Key, (metadata.namespace or "", metadata.name))
            put_listed(key, obj)
            if listed is not None:
                listed.add(key)
        for failed in listing.undecodable:
            if not failed.metadata.name:
                self.unnamed += 1
            elif listed is not None:
                listed.add(Key(failed.metadata.namespace or "", failed.metadata.name))

    def finish(self) -> None:
        """Remove the objects that the list did not contain and set the cache's version to the list's."""
        # An undecodable object without a name may be any cached one, so nothing is removed until it can be decoded.
        if self._listed is not None and not self.unnamed:
            self._updater.remove_unlisted(self._listed)
        self._updater.finish_list(self._version)
