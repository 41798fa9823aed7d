"""Keeps a cache equal to the server: applies events and whole lists, and tells the handlers what changed.

No time, no network: given the same events it does the same. It trusts versions to grow (Kubernetes promises that they
compare as numbers), so an event that is not newer than what was seen is an echo and is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic

from bramley.api.meta import K
from bramley.kube.listing import Listing
from bramley.kube.watching import WatchEvent
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key

Handler = Callable[[Key, K | None, K | None], None]

# Skips the named tuple's own constructor, which takes longer than all else that happens to an event here.
_new = tuple.__new__


class Mirror(Generic[K]):
    """A cache, the version up to which it is true, and those who want to know of changes."""

    def __init__(self, kind: type[K]) -> None:
        self.cache = Cache(kind)
        self.version = 0
        # Pages of a list that was never finished may have shown more than that.
        self._shown = 0
        self.lists = 0
        self._handlers: list[Handler[K]] = []
        self._waiters: list[asyncio.Future[None]] = []

    def on_change(self, handler: Handler[K]) -> None:
        """Call the handler with key, old and new state of each change; None stands for absence."""
        self._handlers.append(handler)

    def apply(self, events: Iterable[WatchEvent[K]]) -> list[WatchEvent[K]]:
        """Take over the events; return those that could not be understood."""
        unread: list[WatchEvent[K]] = []
        seen = self.version
        for event in events:
            metadata = event.object.metadata
            kind = event.type
            if kind == "UNDECODABLE" or not metadata.resource_version.isdecimal():
                unread.append(event)
                continue
            version = int(metadata.resource_version)
            if version <= seen:
                continue
            self.version = seen = version
            if kind == "BOOKMARK":
                continue
            key = _new(Key, (metadata.namespace or "", metadata.name))
            if kind == "DELETED":
                self._remove(key)
            else:
                self._tell(key, self.cache.put(key, event.object), event.object)
        if self._waiters:
            self._wake()
        return unread

    @property
    def newest(self) -> int:
        """Return the newest version of which anything was shown."""
        return max(self.version, self._shown)

    def relist(self, version: int) -> Relist[K]:
        """Begin to take over a whole list of this version."""
        self._shown = version
        return Relist(self, version)

    def replace(self, key: Key, thing: K) -> None:
        """Take over the listed state of one object."""
        old = self.cache.put(key, thing)
        if old is None or old.metadata.resource_version != thing.metadata.resource_version:
            self._tell(key, old, thing)

    def drop_others(self, seen: set[Key]) -> None:
        """Remove what a whole list did not show."""
        for key in [key for key in self.cache if key not in seen]:
            self._remove(key)

    def settle_at(self, version: int) -> None:
        """Be true up to this version of a whole list, which may lie before the one reached earlier."""
        self.lists += 1
        self.version = version
        self._wake()

    async def changed(self) -> None:
        """Wait for the next news from the server, whatever they are."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _tell(self, key: Key, old: K | None, new: K) -> None:
        if old is not None and old.metadata.uid != new.metadata.uid:
            # The deletion in between was missed; whoever counts objects must hear of both.
            self._notify(key, old, None)
            old = None
        for handler in self._handlers:
            handler(key, old, new)

    def _remove(self, key: Key) -> None:
        old = self.cache.remove(key)
        if old is not None:
            self._notify(key, old, None)

    def _notify(self, key: Key, old: K | None, new: K | None) -> None:
        for handler in self._handlers:
            handler(key, old, new)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Relist(Generic[K]):
    """One whole list on its way into the cache: pages are taken over as they come, deletions at the end."""

    def __init__(self, mirror: Mirror[K], version: int) -> None:
        self._mirror = mirror
        self._version = version
        # What an empty cache holds in the end is what was listed, so nobody need remember that.
        self._seen: set[Key] | None = set() if len(mirror.cache) else None
        self.anonymous = 0

    def page(self, listing: Listing[K]) -> None:
        """Take over one page; an object that could not be decoded stays as it was."""
        seen, replace = self._seen, self._mirror.replace
        for thing in listing.items:
            metadata = thing.metadata
            key = _new(Key, (metadata.namespace or "", metadata.name))
            replace(key, thing)
            if seen is not None:
                seen.add(key)
        for misfit in listing.undecodable:
            if not misfit.metadata.name:
                self.anonymous += 1
            elif seen is not None:
                seen.add(Key(misfit.metadata.namespace or "", misfit.metadata.name))

    def finish(self) -> None:
        """Remove what the list did not show and be true at its version."""
        # An object without a name may be any of ours, so nothing counts as gone until it can be read.
        if self._seen is not None and not self.anonymous:
            self._mirror.drop_others(self._seen)
        self._mirror.settle_at(self._version)
