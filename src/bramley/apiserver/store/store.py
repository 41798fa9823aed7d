"""The store: what is committed, what is on its way to the disk, and who is watching.

A write is decided against the head, which includes writes still on their way; readers see only what is durable. A failed
commit throws the head back to what is committed and fails every write that was built on it. All of this runs on the
event loop's thread; `journal` alone knows of another one.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from bramley.apiserver.store import data_folder as folders
from bramley.apiserver.store import data_folder
from bramley.apiserver.store.damage import Damage, Flaw, flawless
from bramley.apiserver.store.errors import Closed, FutureRevision, StorageUnavailable
from bramley.apiserver.store.watch_cache import History
from bramley.apiserver.store.journal import (
    InlineJournal,
    Journal,
    NoDisk,
    OpenJournal,
    ThreadedJournal,
)
from bramley.apiserver.store.watch_cache import Kind
from bramley.apiserver.store.sqlite_file import MeasuredDisk
from bramley.apiserver.store.journal import Pending
from bramley.apiserver.store.records import (
    NOTHING,
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
from bramley.apiserver.store.sqlite_file import Loaded, SqliteFile
from bramley.apiserver.store.subscriptions import Subscription, Wants, total_bytes
from bramley.apiserver.store.watch_cache import Table
from bramley.base import log
from bramley.base.clock import Clock, SystemClock

logger = log.get(__name__)

EMPTY = Loaded(0, {}, {})
STALLED = timedelta(seconds=10)
"""A commit that takes longer is worth telling those who ask after the store's health."""


class Store:
    """Objects under one growing revision, durable before they are seen."""

    def __init__(
        self,
        open_journal: OpenJournal,
        *,
        loaded: Loaded = EMPTY,
        settings: Settings | None = None,
        clock: Clock | None = None,
        lock: folders.FolderLock | None = None,
        flaw: Flaw = flawless,
        disk: MeasuredDisk | None = None,
    ) -> None:
        self.disk = disk
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._lock = lock
        self._revision = loaded.revision
        self._issued = loaded.revision
        self._floor = loaded.floor
        self._kinds: dict[str, Kind] = {}
        self._pending: deque[Pending] = deque()
        self._head: dict[Key, Pending] = {}
        self._closed = False
        self._failure: StorageUnavailable | None = None
        self._waiting_since = 0.0
        self.damage = Damage()
        for resource in sorted(loaded.last_revisions.keys() | loaded.records.keys()):
            records = self.damage.sound(loaded.records.get(resource, ()), flaw)
            floor = loaded.last_revisions.get(resource, 0)
            self._kinds[resource] = self._new_kind(resource, records, floor)
        self._journal: Journal = open_journal(self)

    @classmethod
    def in_memory(cls, settings: Settings | None = None, *, clock: Clock | None = None) -> Store:
        """Return an empty store that keeps nothing when it ends, and needs no thread."""
        return cls(partial(InlineJournal, NoDisk()), settings=settings, clock=clock)

    @classmethod
    def open(
        cls,
        data_folder: Path,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        flaw: Flaw = flawless,
    ) -> Store:
        """Open the store in a data folder; raise BadConfiguration if the folder or its file is unusable.

        Objects in which `flaw` finds something wrong are set aside, see `damage`.
        """
        settings = settings or Settings()
        with contextlib.ExitStack() as undo:
            lock = folders.claim(data_folder)
            undo.callback(lock.release)
            data_folder.finish(data_folder)
            file = SqliteFile.open(data_folder / folders.DATABASE, settings)
            undo.callback(file.close)
            disk = MeasuredDisk(file, data_folder / folders.DATABASE)
            journal: OpenJournal = partial(InlineJournal, disk)
            if settings.writer_thread:
                journal = partial(ThreadedJournal, disk, group_bytes=settings.group_bytes)
            store = cls(
                journal,
                loaded=file.load(),
                settings=settings,
                clock=clock,
                lock=lock,
                flaw=flaw,
                disk=disk,
            )
            undo.pop_all()
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def revision(self) -> int:
        """Return the newest durable revision."""
        return self._revision

    @property
    def pending(self) -> int:
        """Return how many writes are on their way to the disk."""
        return len(self._pending)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Return what is kept of each resource, for those who count it; nobody else may look there."""
        return MappingProxyType(self._kinds)

    @property
    def trouble(self) -> StorageUnavailable | None:
        """Return why writes fail or hang at present, or None; reads go on in any case."""
        waited = self._clock.monotonic() - self._waiting_since
        if self._pending and waited > STALLED.total_seconds():
            return StorageUnavailable(f"the disk has not answered for {waited:.0f} s")
        return self._failure

    def get(self, key: Key) -> Record | None:
        """Return an object, or None."""
        kind = self._kinds.get(key.resource)
        return kind.table.get(key) if kind else None

    def latest(self, resource: str) -> int:
        """Return the revision of a resource's last durable change, so that what was computed from it can be kept."""
        kind = self._kinds.get(resource)
        return kind.latest if kind else 0

    def list(self, resource: str, namespace: str | None = None) -> Records:
        """Return a resource's objects, or those in one namespace, in order of namespace and name."""
        kind = self._kinds.get(resource)
        return kind.table.ordered(namespace) if kind else []

    def newest(self, resource: str) -> Records:
        """Return a resource's objects as they will be once the writes on their way are durable, in no order.

        For decisions that must not give out twice what two objects cannot both have; readers are shown `list`.
        """
        ahead = {key: each.change.after for key, each in self._head.items()}
        kept = [each for each in self.list(resource) if each.key not in ahead]
        coming = (each for key, each in ahead.items() if key.resource == resource)
        return kept + [each for each in coming if each is not None]

    def list_at(self, resource: str, rv: int, namespace: str | None = None) -> Records:
        """Return what `list` returned at a revision; raise Compacted or FutureRevision if that is unknown."""
        newer = self._since(resource, rv)
        return self._kind(resource).list_before(newer, namespace)

    async def write(self, key: Key, build: Build) -> Record:
        """Let `build` decide one object's next state; return it once it is durable.

        `build` runs at once, against the head. What it raises is raised, and None leaves the object as it is; when its
        answer rests on a write that is not durable yet, that one is awaited first, and its failure wins.
        """
        if self._closed:
            raise Closed("the store is closed")
        ahead = self._head.get(key)
        head = ahead.change.after if ahead else self.get(key)
        decided = False
        try:
            draft = build(head, self._issued + 1)
            decided = draft is not None
        finally:
            if ahead and not decided:
                await ahead.durable()
        if draft is not None:
            return await self._submit(key, head, draft).durable()
        if head is None:
            raise ValueError(f"nothing can stay unchanged at {key}: it does not exist")
        return head

    def watch(
        self,
        resource: str,
        *,
        namespace: str | None = None,
        since: int,
        wants: Wants | None = None,
    ) -> Subscription:
        """Subscribe to every change after a revision; raise Compacted or FutureRevision if that cannot be.

        What `wants` declines is not delivered and wakes nobody: a thousand agents that each watch their own pods cost
        a thousand cheap questions, not a thousand awakenings.
        """
        if self._closed:
            raise Closed("the store is closed")
        missed = self._since(resource, since)
        watchers = self._kind(resource).watchers
        subscription = Subscription(
            wants if namespace is None else _inside(namespace, wants),
            since=since,
            limit_bytes=self._settings.watch_buffer_bytes,
            newest=lambda: self._revision,
            leave=lambda leaver: watchers.pop(leaver, None),
        )
        subscription.offer(missed, size_bytes=total_bytes(missed))
        watchers[subscription] = None
        return subscription

    def snapshot(self) -> Loaded:
        """Return all that is durable at this moment; records never change, so later writes leave it as it is."""
        kinds = self._kinds.items()
        return Loaded(
            self._revision,
            {name: kind.latest for name, kind in kinds if kind.latest},
            {name: kind.table.ordered() for name, kind in kinds if len(kind.table)},
            self._floor,
        )

    def compact(self) -> None:
        """Forget all history, so that only who is up to date can resume."""
        for kind in self._kinds.values():
            kind.compact()

    async def close(self) -> None:
        """Finish the writes under way, end all watches and let go of the folder."""
        if self._closed:
            return
        self._closed = True
        await self._journal.close()
        for kind in self._kinds.values():
            for subscription in tuple(kind.watchers):
                subscription.end(Closed("the store is closed"))
        if self._lock:
            self._lock.release()

    def committed(self, count: int) -> None:
        """Show the oldest `count` pending changes to readers, then to those who wrote them, then to watchers.

        All see the same state; but whoever wakes first goes first, and a writer must not wait for a hundred watchers.
        """
        done = [self._pending.popleft() for _ in range(count)]
        groups: dict[str, list[Change]] = {}
        for pending in done:
            key = pending.change.record.key
            groups.setdefault(key.resource, []).append(pending.change)
            if self._head.get(key) is pending:
                del self._head[key]
            self.damage.aside.pop(key, None)
        self._revision = done[-1].change.rv
        now = self._clock.monotonic()
        for resource, changes in groups.items():
            self._kind(resource).publish(changes, now=now)
        self._waiting_since = now
        if self._failure:
            self._failure = None
            logger.info("Writes succeed again", revision=self._revision)
        for pending in done:
            pending.settle()
        for resource, changes in groups.items():
            self._kind(resource).tell(changes)

    def failed(self, error: StorageUnavailable) -> None:
        """Throw the head back to what is committed; the revisions given out are not given out again."""
        lost, self._pending = self._pending, deque()
        self._head.clear()
        if lost and not self._failure:  # a full disk fails every write; one line tells it
            logger.error("Writes fail", revision=self._revision, reason=str(error))
        if lost:
            self._failure = error
        for pending in lost:
            pending.settle(error)

    def _submit(self, key: Key, head: Record | None, draft: Draft | Removal) -> Pending:
        if head is None and isinstance(draft, Removal) and key not in self.damage.aside:
            raise ValueError(f"nothing can be removed at {key}: it does not exist")
        self._issued += 1
        change = _change(key, head, draft, rv=self._issued)
        pending = Pending(change)
        if not self._pending:
            self._waiting_since = self._clock.monotonic()
        self._pending.append(pending)
        self._head[key] = pending
        self._journal.submit(change)
        return pending

    def _since(self, resource: str, rv: int) -> Changes:
        if rv > self._revision:
            raise FutureRevision(asked=rv, current=self._revision)
        return self._kind(resource).since(rv, now=self._clock.monotonic())

    def _kind(self, resource: str) -> Kind:
        kind = self._kinds.get(resource)
        if kind is None:
            kind = self._kinds[resource] = self._new_kind(resource, (), 0)
        return kind

    def _new_kind(self, resource: str, records: Iterable[Record], floor: int) -> Kind:
        floor = max(floor, self._floor)
        history = History(resource, self._settings.history_of(resource), floor=floor)
        return Kind(Table(records), history)


def _change(key: Key, head: Record | None, draft: Draft | Removal, *, rv: int) -> Change:
    """Turn a decision into a change that shares what it can with the state before it."""
    if head is None:
        key = Key(key.resource, sys.intern(key.namespace), key.name)
        record = Record(key, rv, draft.body, _shared(draft.labels), _shared(draft.fields))
        # What goes without having been there was set aside.
        return Change("DELETED" if isinstance(draft, Removal) else "ADDED", record, None)
    labels = head.labels if head.labels == draft.labels else _shared(draft.labels)
    fields = head.fields if head.fields == draft.fields else _shared(draft.fields)
    record = Record(head.key, rv, draft.body, labels, fields)
    return Change("DELETED" if isinstance(draft, Removal) else "MODIFIED", record, head)


def _shared(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """Return the mapping with texts that all equal texts of the process share."""
    if not mapping:
        return NOTHING
    return {sys.intern(name): sys.intern(value) for name, value in mapping.items()}


def _inside(namespace: str, wants: Wants | None) -> Wants:
    """Return a filter that also asks for the namespace."""
    if wants is None:
        return lambda change: change.record.key.namespace == namespace
    return lambda change: change.record.key.namespace == namespace and wants(change)
