"""The store: what is committed, what is on its way to the disk, and who is watching.

A write is decided against the head, which includes writes still on their way; readers see only what is durable. A failed
commit throws the head back to what is committed and fails every write that was built on it. All of this runs on the
event loop's thread; `journal` alone knows of another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from bramley.base import log
from bramley.base.clock import Clock, SystemClock

from . import folder as folders
from .errors import Closed, FutureRevision, StorageUnavailable
from .history import History
from .journal import InlineJournal, Journal, NoDisk, OpenJournal, ThreadedJournal
from .records import Build, Change, Changes, Draft, Key, Record, Records, Removal
from .settings import Settings
from .sqlite_file import Loaded, SqliteFile
from .subscriptions import Subscription
from .tables import Table

logger = log.get(__name__)

EMPTY = Loaded(0, {}, {})


class _Pending:
    """A change on its way to the disk, and those who wait for it."""

    __slots__ = ("change", "error", "settled", "waiters")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.settled = False
        self.error: StorageUnavailable | None = None
        self.waiters: list[asyncio.Future[None]] = []

    async def durable(self) -> Record:
        """Wait until the change is on the disk; raise StorageUnavailable if it never will be."""
        if not self.settled:
            # A future each: cancelling one who waits must not take the result from the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            await waiter
        if self.error:
            raise StorageUnavailable(str(self.error)) from self.error
        return self.change.record

    def settle(self, error: StorageUnavailable | None = None) -> None:
        """Let everybody who waits go on."""
        self.settled = True
        self.error = error
        for waiter in self.waiters:
            if not waiter.done():  # whoever waited may have gone away
                waiter.set_result(None)


class _Kind:
    """All that is kept of one resource."""

    __slots__ = ("history", "table", "watchers")

    def __init__(self, table: Table, history: History) -> None:
        self.table = table
        self.history = history
        self.watchers: set[Subscription] = set()


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
    ) -> None:
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._lock = lock
        self._revision = loaded.revision
        self._issued = loaded.revision
        self._kinds: dict[str, _Kind] = {}
        self._pending: deque[_Pending] = deque()
        self._head: dict[Key, _Pending] = {}
        self._closed = False
        for resource in loaded.last_revisions.keys() | loaded.records.keys():
            self._kinds[resource] = self._new_kind(
                resource, loaded.records.get(resource, ()), loaded.last_revisions.get(resource, 0)
            )
        self._journal: Journal = open_journal(self)

    @classmethod
    def in_memory(cls, settings: Settings | None = None, *, clock: Clock | None = None) -> Store:
        """Return an empty store that keeps nothing when it ends, and needs no thread."""
        return cls(partial(InlineJournal, NoDisk()), settings=settings, clock=clock)

    @classmethod
    def open(
        cls, folder: Path, settings: Settings | None = None, *, clock: Clock | None = None
    ) -> Store:
        """Open the store in a data folder; raise BadConfiguration if the folder or its file is unusable."""
        settings = settings or Settings()
        lock = folders.claim(folder)
        try:
            disk = SqliteFile.open(folder / folders.DATABASE, settings)
            journal: OpenJournal = partial(InlineJournal, disk)
            if settings.writer_thread:
                journal = partial(ThreadedJournal, disk, group_bytes=settings.group_bytes)
            return cls(journal, loaded=disk.load(), settings=settings, clock=clock, lock=lock)
        except BaseException:
            lock.release()
            raise

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

    def get(self, key: Key) -> Record | None:
        """Return an object, or None."""
        kind = self._kinds.get(key.resource)
        return kind.table.get(key) if kind else None

    def list(self, resource: str, namespace: str | None = None) -> Records:
        """Return a resource's objects, or those in one namespace, in order of namespace and name."""
        kind = self._kinds.get(resource)
        return kind.table.ordered(namespace) if kind else []

    def list_at(self, resource: str, rv: int, namespace: str | None = None) -> Records:
        """Return what `list` returned at a revision; raise Compacted or FutureRevision if that is unknown."""
        newer = self._since(resource, rv)
        if not newer:
            return self.list(resource, namespace)
        table = self._kind(resource).table.copy()
        for change in reversed(newer):
            table.undo(change)
        return table.ordered(namespace)

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

    def watch(self, resource: str, *, namespace: str | None = None, since: int) -> Subscription:
        """Subscribe to every change after a revision; raise Compacted or FutureRevision if that cannot be."""
        if self._closed:
            raise Closed("the store is closed")
        missed = self._since(resource, since)
        watchers = self._kind(resource).watchers
        subscription = Subscription(
            namespace=namespace,
            since=since,
            limit_bytes=self._settings.watch_buffer_bytes,
            newest=lambda: self._revision,
            leave=watchers.discard,
        )
        subscription.offer(missed)
        watchers.add(subscription)
        return subscription

    def compact(self) -> None:
        """Forget all history, so that only who is up to date can resume."""
        for kind in self._kinds.values():
            kind.history.clear()

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
        """Show the oldest `count` pending changes to readers and watchers, then to those who wrote them."""
        done = [self._pending.popleft() for _ in range(count)]
        now = self._clock.monotonic()
        groups: dict[str, list[Change]] = {}
        for pending in done:
            change = pending.change
            key = change.record.key
            kind = self._kind(key.resource)
            kind.table.apply(change)
            kind.history.append(change, now=now)
            groups.setdefault(key.resource, []).append(change)
            if self._head.get(key) is pending:
                del self._head[key]
        self._revision = done[-1].change.rv
        for resource, changes in groups.items():
            for subscription in self._kinds[resource].watchers:
                subscription.offer(changes)
        for pending in done:
            pending.settle()

    def failed(self, error: StorageUnavailable) -> None:
        """Throw the head back to what is committed; the revisions given out are not given out again."""
        lost, self._pending = self._pending, deque()
        self._head.clear()
        if not lost:
            return
        logger.error("Writes failed", count=len(lost), revision=self._revision, exc=error)
        for pending in lost:
            pending.settle(error)

    def _submit(self, key: Key, head: Record | None, draft: Draft | Removal) -> _Pending:
        if head is None and isinstance(draft, Removal):
            raise ValueError(f"nothing can be removed at {key}: it does not exist")
        self._issued += 1
        record = Record(key, self._issued, draft.body, draft.labels, draft.fields)
        if isinstance(draft, Removal):
            change = Change("DELETED", record, head)
        else:
            change = Change("MODIFIED" if head else "ADDED", record, head)
        pending = _Pending(change)
        self._pending.append(pending)
        self._head[key] = pending
        self._journal.submit(change)
        return pending

    def _since(self, resource: str, rv: int) -> Changes:
        if rv > self._revision:
            raise FutureRevision(asked=rv, current=self._revision)
        history = self._kind(resource).history
        history.trim(self._clock.monotonic())
        return history.since(rv)

    def _kind(self, resource: str) -> _Kind:
        kind = self._kinds.get(resource)
        if kind is None:
            kind = self._kinds[resource] = self._new_kind(resource, (), 0)
        return kind

    def _new_kind(self, resource: str, records: Iterable[Record], floor: int) -> _Kind:
        history = History(resource, self._settings.history_of(resource), floor=floor)
        return _Kind(Table(records), history)
