"""The store: committed objects, writes that are not durable yet, and watchers.

A write is decided against the head, which includes pending writes; readers see only what is durable. A failed commit resets
the head to what is committed and fails every write that was based on it. All of this runs on the event loop's thread; only
`journal` uses another one.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Self

from bramley.apiserver.store import data_folder
from bramley.apiserver.store.damage import CheckRecord, DamagedObjects, accept_any
from bramley.apiserver.store.errors import Closed, FutureRevision, StorageUnavailable
from bramley.apiserver.store.journal import (
    InlineJournal,
    Journal,
    NoDisk,
    OpenJournal,
    PendingWrite,
    ThreadedJournal,
)
from bramley.apiserver.store.records import (
    NO_VALUES,
    Build,
    Change,
    Changes,
    Draft,
    Key,
    Record,
    Records,
    Removal,
)
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.sqlite_file import MeasuredDisk, Snapshot, SqliteFile
from bramley.apiserver.store.subscriptions import ChangeFilter, Subscription, total_bytes
from bramley.apiserver.store.watch_cache import History, ObjectTable, WatchCache
from bramley.base import log
from bramley.base.clock import Clock, SystemClock

logger = log.get(__name__)

EMPTY = Snapshot(0, {}, {})
STALLED = timedelta(seconds=10)
"""A commit that takes longer makes the store unhealthy."""


class Store:
    """Objects under one growing revision; a change is durable before it is visible."""

    def __init__(
        self,
        open_journal: OpenJournal,
        *,
        loaded: Snapshot = EMPTY,
        settings: Settings | None = None,
        clock: Clock | None = None,
        lock: data_folder.FolderLock | None = None,
        check_record: CheckRecord = accept_any,
        disk: MeasuredDisk | None = None,
    ) -> None:
        self.disk = disk
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._lock = lock
        self._revision = loaded.revision
        self._last_assigned = loaded.revision
        self._floor = loaded.floor
        self._caches: dict[str, WatchCache] = {}
        self._pending: deque[PendingWrite] = deque()
        self._head: dict[Key, PendingWrite] = {}
        self._closed = False
        self._failure: StorageUnavailable | None = None
        self._waiting_since = 0.0
        self.damage = DamagedObjects()
        for resource in sorted(loaded.last_revisions.keys() | loaded.records.keys()):
            records = self.damage.without_damaged(loaded.records.get(resource, ()), check_record)
            floor = loaded.last_revisions.get(resource, 0)
            self._caches[resource] = self._new_cache(resource, records, floor)
        self._journal: Journal = open_journal(self)

    @classmethod
    def in_memory(cls, settings: Settings | None = None, *, clock: Clock | None = None) -> Store:
        """Return an empty store without files and without a thread."""
        return cls(partial(InlineJournal, NoDisk()), settings=settings, clock=clock)

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        check_record: CheckRecord = accept_any,
    ) -> Store:
        """Open the store in a data folder; raise BadConfiguration if the folder or its file is unusable.

        Objects that `check_record` rejects are quarantined, see `damage`.
        """
        settings = settings or Settings()
        with contextlib.ExitStack() as undo:
            lock = data_folder.lock_folder(folder)
            undo.callback(lock.release)
            # Before the file is opened: an interrupted restore replaces it.
            data_folder.finish_restore(folder)
            file = SqliteFile.open(folder / data_folder.DATABASE, settings)
            undo.callback(file.close)
            disk = MeasuredDisk(file, folder / data_folder.DATABASE)
            journal: OpenJournal = partial(InlineJournal, disk)
            if settings.writer_thread:
                journal = partial(ThreadedJournal, disk, group_bytes=settings.group_bytes)
            store = cls(
                journal,
                loaded=file.load(),
                settings=settings,
                clock=clock,
                lock=lock,
                check_record=check_record,
                disk=disk,
            )
            undo.pop_all()
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def revision(self) -> int:
        """Return the newest durable revision."""
        return self._revision

    @property
    def pending(self) -> int:
        """Return how many writes are not durable yet."""
        return len(self._pending)

    @property
    def caches(self) -> Mapping[str, WatchCache]:
        """Return the cache of each resource; for metrics only."""
        return MappingProxyType(self._caches)

    @property
    def write_error(self) -> StorageUnavailable | None:
        """Return why writes fail or hang at present, or None; reads work in any case."""
        waited = self._clock.monotonic() - self._waiting_since
        if self._pending and waited > STALLED.total_seconds():
            return StorageUnavailable(f"the disk has not answered for {waited:.0f} s")
        return self._failure

    def get(self, key: Key) -> Record | None:
        """Return an object, or None."""
        cache = self._caches.get(key.resource)
        return cache.table.get(key) if cache else None

    def latest(self, resource: str) -> int:
        """Return the revision of a resource's last durable change; what was computed from it is valid until it changes."""
        cache = self._caches.get(resource)
        return cache.latest if cache else 0

    def list(self, resource: str, namespace: str | None = None) -> Records:
        """Return a resource's objects, or those in one namespace, in order of namespace and name."""
        cache = self._caches.get(resource)
        return cache.table.ordered(namespace) if cache else []

    def list_with_pending(self, resource: str) -> Records:
        """Return a resource's objects as they will be once all pending writes are durable, in no order.

        For allocations, which must not give the same value to two objects; everything else reads `list`.
        """
        pending = {key: each.change.after for key, each in self._head.items()}
        unchanged = [each for each in self.list(resource) if each.key not in pending]
        changed = (each for key, each in pending.items() if key.resource == resource)
        return unchanged + [each for each in changed if each is not None]

    def list_at(self, resource: str, rv: int, namespace: str | None = None) -> Records:
        """Return what `list` returned at a revision; raise Compacted or FutureRevision if that is unknown."""
        newer = self._changes_since(resource, rv)
        return self._cache(resource).list_before(newer, namespace)

    async def write(self, key: Key, build: Build) -> Record:
        """Store what `build` returns as the object's next state; return it once it is durable.

        `build` runs at once, against the head. What it raises is raised, and None leaves the object unchanged; when either
        depends on a pending write, that write is awaited first, and its failure is raised instead.
        """
        if self._closed:
            raise Closed("the store is closed")
        pending = self._head.get(key)
        head = pending.change.after if pending else self.get(key)
        is_write = False
        try:
            # Nothing is awaited from the read of the head to the submission, so no other write comes between them.
            draft = build(head, self._last_assigned + 1)
            is_write = draft is not None
        finally:
            # A refusal must not be visible before the state that it is based on is durable.
            if pending and not is_write:
                await pending.wait_durable()
        if draft is not None:
            return await self._submit(key, head, draft).wait_durable()
        if head is None:
            raise ValueError(f"{key} does not exist, so it cannot stay unchanged")
        return head

    def watch(
        self,
        resource: str,
        *,
        namespace: str | None = None,
        since: int,
        accepts: ChangeFilter | None = None,
    ) -> Subscription:
        """Subscribe to every change after a revision; raise Compacted or FutureRevision if that is impossible.

        A change that `accepts` rejects does not wake the watcher: a thousand agents that each watch their own Pods cost a
        thousand cheap calls per change, not a thousand wakeups.
        """
        if self._closed:
            raise Closed("the store is closed")
        missed = self._changes_since(resource, since)
        watchers = self._cache(resource).watchers
        subscription = Subscription(
            accepts if namespace is None else _in_namespace(namespace, accepts),
            since=since,
            limit_bytes=self._settings.watch_buffer_bytes,
            current_revision=lambda: self._revision,
            unsubscribe=lambda watcher: watchers.pop(watcher, None),
        )
        # No gap and no repetition: commits are published on this thread, so none comes between the history and the registration.
        subscription.offer(missed, size_bytes=total_bytes(missed))
        watchers[subscription] = None
        return subscription

    def snapshot(self) -> Snapshot:
        """Return everything that is durable now; records are immutable, so later writes do not change it."""
        caches = self._caches.items()
        return Snapshot(
            self._revision,
            {name: cache.latest for name, cache in caches if cache.latest},
            {name: cache.table.ordered() for name, cache in caches if len(cache.table)},
            self._floor,
        )

    def compact(self) -> None:
        """Drop all history, so that only watchers that are up to date can resume."""
        for cache in self._caches.values():
            cache.compact()

    async def close(self) -> None:
        """Finish the pending writes, end all watches and unlock the folder."""
        if self._closed:
            return
        # First: no write may be submitted once the journal is closing.
        self._closed = True
        await self._journal.close()
        for cache in self._caches.values():
            for subscription in tuple(cache.watchers):
                subscription.end(Closed("the store is closed"))
        # Last: the file is closed now, and another process may open it.
        if self._lock:
            self._lock.release()

    def on_committed(self, count: int) -> None:
        """Publish the oldest `count` pending changes to readers, then to their writers, then to watchers.

        The order must stay: writers and watchers must find the state that they are notified of, and a writer must not wait
        until a hundred watchers are served.
        """
        writes = [self._pending.popleft() for _ in range(count)]
        groups: dict[str, list[Change]] = {}
        for pending in writes:
            key = pending.change.record.key
            groups.setdefault(key.resource, []).append(pending.change)
            # A later write of the same object may be pending; then that one stays the head.
            if self._head.get(key) is pending:
                del self._head[key]
            # The write replaced or removed the damaged object.
            self.damage.quarantined.pop(key, None)
        self._revision = writes[-1].change.rv
        now = self._clock.monotonic()
        for resource, changes in groups.items():
            self._cache(resource).publish(changes, now=now)
        self._waiting_since = now
        if self._failure:
            self._failure = None
            logger.info("Store writes succeed again", revision=self._revision)
        for pending in writes:
            pending.resolve()
        for resource, changes in groups.items():
            self._cache(resource).notify(changes)

    def on_failed(self, error: StorageUnavailable) -> None:
        """Reset the head to what is committed; revisions that were assigned are not assigned again."""
        writes, self._pending = self._pending, deque()
        self._head.clear()
        if writes and not self._failure:  # a full disk fails every write; it is logged once
            logger.error("Store writes fail", revision=self._revision, reason=str(error))
        if writes:
            self._failure = error
        for pending in writes:
            pending.resolve(error)

    def _submit(self, key: Key, head: Record | None, draft: Draft | Removal) -> PendingWrite:
        if head is None and isinstance(draft, Removal) and key not in self.damage.quarantined:
            raise ValueError(f"{key} does not exist, so it cannot be removed")
        self._last_assigned += 1
        change = _change(key, head, draft, rv=self._last_assigned)
        pending = PendingWrite(change)
        if not self._pending:
            self._waiting_since = self._clock.monotonic()
        # Registered before the submission: the inline journal reports the result within that call.
        self._pending.append(pending)
        self._head[key] = pending
        self._journal.submit(change)
        return pending

    def _changes_since(self, resource: str, rv: int) -> Changes:
        if rv > self._revision:
            raise FutureRevision(requested=rv, current=self._revision)
        return self._cache(resource).since(rv, now=self._clock.monotonic())

    def _cache(self, resource: str) -> WatchCache:
        cache = self._caches.get(resource)
        if cache is None:
            cache = self._caches[resource] = self._new_cache(resource, (), 0)
        return cache

    def _new_cache(self, resource: str, records: Iterable[Record], floor: int) -> WatchCache:
        floor = max(floor, self._floor)
        history = History(resource, self._settings.history_of(resource), floor=floor)
        return WatchCache(ObjectTable(records), history)


def _change(key: Key, head: Record | None, draft: Draft | Removal, *, rv: int) -> Change:
    """Return a write as a change that shares unchanged labels and fields with the state before it."""
    if head is None:
        key = Key(key.resource, sys.intern(key.namespace), key.name)
        record = Record(key, rv, draft.body, _interned(draft.labels), _interned(draft.fields))
        # An object that is removed but not in the head was quarantined.
        return Change("DELETED" if isinstance(draft, Removal) else "ADDED", record, None)
    labels = head.labels if head.labels == draft.labels else _interned(draft.labels)
    fields = head.fields if head.fields == draft.fields else _interned(draft.fields)
    record = Record(head.key, rv, draft.body, labels, fields)
    return Change("DELETED" if isinstance(draft, Removal) else "MODIFIED", record, head)


def _interned(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """Return the mapping with interned texts."""
    if not mapping:
        return NO_VALUES
    return {sys.intern(name): sys.intern(value) for name, value in mapping.items()}


def _in_namespace(namespace: str, accepts: ChangeFilter | None) -> ChangeFilter:
    """Return a filter that accepts only changes in one namespace."""
    if accepts is None:
        return lambda change: change.record.key.namespace == namespace
    return lambda change: change.record.key.namespace == namespace and accepts(change)
