"""How changes reach the disk: in order, several per commit, each group reported once on the loop's thread.

`InlineJournal` commits within the call and is what virtual time needs. `ThreadedJournal` has one writer thread that commits
whatever queued up during its previous commit, so that many writers share one fsync.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeAlias

from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.watch_cache import cost_bytes
from bramley.apiserver.store.records import Change, Record
from bramley.base import log


class Pending:
    """A change on its way to the disk."""

    __slots__ = ("_error", "_settled", "_waiters", "change")

    def __init__(self, change: Change) -> None:
        self.change = change
        self._settled = False
        self._error: StorageUnavailable | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def durable(self) -> Record:
        """Wait until the change is on the disk; raise StorageUnavailable if it never will be."""
        if not self._settled:
            # A future each: cancelling one who waits must not take the result from the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._error:
            # A new one for each who waits: a traceback grows with every raise.
            raise StorageUnavailable(
                str(self._error), cured_by_restart=self._error.cured_by_restart
            ) from self._error
        return self.change.record

    def settle(self, error: StorageUnavailable | None = None) -> None:
        """Let everybody who waits go on, to the record or to the error."""
        self._settled = True
        self._error = error
        for waiter in self._waiters:
            if not waiter.done():  # whoever waited may have gone away
                waiter.set_result(None)


logger = log.get(__name__)

SLOW_COMMIT = timedelta(seconds=1)
"""A disk that takes this long makes every writer wait; an operator should know."""


class Disk(Protocol):
    """Makes groups of changes durable."""

    def commit(self, group: Sequence[Change]) -> None:
        """Store all of the group or nothing of it; return only when it would survive a loss of power.

        Raises StorageUnavailable when nothing was stored; a later call may succeed.
        """
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


class Listener(Protocol):
    """Learns on the loop's thread how the submitted changes fared, oldest first."""

    def committed(self, count: int) -> None:
        """Take note that the oldest `count` changes are durable."""
        ...

    def failed(self, error: StorageUnavailable) -> None:
        """Take note that no submitted change that was not reported durable will ever be."""
        ...


class Journal(Protocol):
    """Takes changes in order of revision, makes them durable and reports to the listener it was made with."""

    def submit(self, change: Change) -> None:
        """Take one change; its fate is reported later, or before this call returns."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, then let go of the disk."""
        ...


OpenJournal: TypeAlias = Callable[[Listener], Journal]


class NoDisk:
    """Keeps nothing: the disk of a store that lives in memory only."""

    def commit(self, group: Sequence[Change]) -> None:
        """Forget the group."""

    def close(self) -> None:
        """Let go of nothing."""


class InlineJournal:
    """Commits each change within the call that submits it."""

    def __init__(self, disk: Disk, listener: Listener) -> None:
        self._disk = disk
        self._listener = listener

    def submit(self, change: Change) -> None:
        """Commit one change and report it."""
        try:
            self._disk.commit((change,))
        except StorageUnavailable as error:
            self._listener.failed(error)
        else:
            self._listener.committed(1)

    async def close(self) -> None:
        """Let go of the disk."""
        self._disk.close()


class ThreadedJournal:
    """Commits in one writer thread; whatever is submitted during a commit forms the next group.

    After a failed commit, changes that were built on it may already be queued. They carry the era in which they were
    submitted, and the thread drops every change of an era that has failed; the loop begins a new era when it hears of it.
    """

    def __init__(self, disk: Disk, listener: Listener, *, group_bytes: int) -> None:
        self._disk = disk
        self._listener = listener
        self._group_bytes = group_bytes
        self._queue: queue.SimpleQueue[tuple[int, Change] | None] = queue.SimpleQueue()
        self._era = 0
        self._failed_era = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        # A daemon: a process that ends without closing its store must not hang, and is as safe as a killed one.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, change: Change) -> None:
        """Hand one change to the writer thread."""
        if self._ended.is_set():
            self._listener.failed(_stopped())
            return
        self._loop = asyncio.get_running_loop()
        self._queue.put((self._era, change))

    async def close(self) -> None:
        """Wait until the thread has committed everything and closed the disk."""
        self._loop = asyncio.get_running_loop()
        self._queue.put(None)
        # The thread needs this loop for its last reports, so the loop must not block in join() before it has them.
        await self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (group := self._next_group()) is not None:
                if group:
                    self._commit(group)
        finally:
            self._disk.close()
            self._report(self._end)

    def _next_group(self) -> list[Change] | None:
        """Wait for a change and take all that are there, up to the size of a group; None at the end."""
        item = self._queue.get()
        group: list[Change] = []
        size_bytes = 0
        while item is not None:
            era, change = item
            if era > self._failed_era:
                group.append(change)
                size_bytes += cost_bytes(change)
            if size_bytes >= self._group_bytes:
                return group
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group
        if not group:
            return None
        self._queue.put(None)  # seen too early: it must also end the next round
        return group

    def _commit(self, group: Sequence[Change]) -> None:
        began = time.monotonic()
        try:
            self._disk.commit(group)
        except StorageUnavailable as error:
            # The group is of the current era: the loop begins the next one only after this report.
            self._failed_era = self._era
            self._report(partial(self._begin_era, error))
        else:
            self._report(partial(self._listener.committed, len(group)))
        if (seconds := time.monotonic() - began) > SLOW_COMMIT.total_seconds():
            logger.warning("Commit was slow", seconds=round(seconds, 3), changes=len(group))

    def _begin_era(self, error: StorageUnavailable) -> None:
        self._era += 1
        self._listener.failed(error)

    def _end(self) -> None:
        self._ended.set()
        # After an orderly end nothing is pending; if a bug killed the thread, nobody may wait for ever.
        self._begin_era(_stopped())

    def _report(self, call: Callable[[], None]) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop ended without closing the store: nobody is left who could be told.
            logger.warning("Writer outlived its event loop")


def _stopped() -> StorageUnavailable:
    return StorageUnavailable("the store's writer has stopped", cured_by_restart=True)
