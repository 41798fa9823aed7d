"""Journals write changes to the disk: in order, several per commit, each group reported once on the loop's thread.

`InlineJournal` commits within the call, as virtual time needs it. `ThreadedJournal` has one writer thread that commits all
changes that were queued during its previous commit, so that many writers share one fsync.
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
from bramley.apiserver.store.records import Change, Record
from bramley.apiserver.store.watch_cache import cost_bytes
from bramley.base import log


class PendingWrite:
    """A change that is not durable yet, and the tasks that wait for it."""

    __slots__ = ("_error", "_resolved", "_waiters", "change")

    def __init__(self, change: Change) -> None:
        self.change = change
        self._resolved = False
        self._error: StorageUnavailable | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def wait_durable(self) -> Record:
        """Wait until the change is durable; raise StorageUnavailable if it failed."""
        if not self._resolved:
            # One future per waiter: cancelling one of them must not cancel the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._error:
            # A new exception per waiter, because a traceback grows with every raise.
            raise StorageUnavailable(
                str(self._error), cured_by_restart=self._error.cured_by_restart
            ) from self._error
        return self.change.record

    def resolve(self, error: StorageUnavailable | None = None) -> None:
        """Wake all waiters with the record or with the error."""
        self._resolved = True
        self._error = error
        for waiter in self._waiters:
            if not waiter.done():  # the waiter may have been cancelled
                waiter.set_result(None)


logger = log.get(__name__)

SLOW_COMMIT = timedelta(seconds=1)
"""Slower commits are logged, because every writer waits for them."""


class Disk(Protocol):
    """Makes groups of changes durable."""

    def commit(self, group: Sequence[Change]) -> None:
        """Store all of the group or nothing of it; return only when it survives a loss of power.

        Raises StorageUnavailable when nothing was stored; a later call may succeed.
        """
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class Listener(Protocol):
    """Gets the results of the submitted changes on the loop's thread, oldest first."""

    def on_committed(self, count: int) -> None:
        """Handle that the oldest `count` changes are durable."""
        ...

    def on_failed(self, error: StorageUnavailable) -> None:
        """Handle that all submitted changes that are not reported as durable have failed."""
        ...


class Journal(Protocol):
    """Makes changes durable in order of revision and reports the results to its listener."""

    def submit(self, change: Change) -> None:
        """Accept one change; its result is reported later, or before this call returns."""
        ...

    async def close(self) -> None:
        """Finish all submitted changes, then close the disk."""
        ...


OpenJournal: TypeAlias = Callable[[Listener], Journal]


class NoDisk:
    """The disk of a store that is in memory only."""

    def commit(self, group: Sequence[Change]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


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
            self._listener.on_failed(error)
        else:
            self._listener.on_committed(1)

    async def close(self) -> None:
        """Close the disk."""
        self._disk.close()


class ThreadedJournal:
    """Commits in one writer thread; the changes that are submitted during a commit form the next group.

    After a failed commit, changes that depend on it may already be queued. Each change has the epoch in which it was
    submitted, and the thread drops every change of a failed epoch; the loop begins a new epoch when the failure is reported.
    """

    def __init__(self, disk: Disk, listener: Listener, *, group_bytes: int) -> None:
        self._disk = disk
        self._listener = listener
        self._group_bytes = group_bytes
        self._queue: queue.SimpleQueue[tuple[int, Change] | None] = queue.SimpleQueue()
        self._epoch = 0
        self._failed_epoch = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        # A daemon: a process that ends without closing its store must not hang; that is as safe as a kill.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, change: Change) -> None:
        """Queue one change for the writer thread."""
        # No thread would commit the change.
        if self._ended.is_set():
            self._listener.on_failed(_stopped())
            return
        self._loop = asyncio.get_running_loop()
        self._queue.put((self._epoch, change))

    async def close(self) -> None:
        """Wait until the thread has committed everything and closed the disk."""
        self._loop = asyncio.get_running_loop()
        self._queue.put(None)
        # The thread needs this loop for its last reports, so join() must come after them: it blocks the loop.
        await self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (group := self._next_group()) is not None:
                if group:
                    self._commit(group)
        finally:
            # Before the report: after it the folder is unlocked, and another process may open the file.
            self._disk.close()
            self._report(self._end)

    def _next_group(self) -> list[Change] | None:
        """Wait for a change and return all queued ones, up to the size of a group; None at the end."""
        item = self._queue.get()
        group: list[Change] = []
        size_bytes = 0
        while item is not None:
            epoch, change = item
            if epoch > self._failed_epoch:
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
        # The end mark was read with the last group; it must also end the next round.
        self._queue.put(None)
        return group

    def _commit(self, group: Sequence[Change]) -> None:
        began = time.monotonic()
        try:
            self._disk.commit(group)
        except StorageUnavailable as error:
            # The group is of the current epoch: the loop begins the next one only after this report.
            self._failed_epoch = self._epoch
            self._report(partial(self._begin_epoch, error))
        else:
            self._report(partial(self._listener.on_committed, len(group)))
        if (seconds := time.monotonic() - began) > SLOW_COMMIT.total_seconds():
            logger.warning("Store commit was slow", seconds=round(seconds, 3), changes=len(group))

    def _begin_epoch(self, error: StorageUnavailable) -> None:
        self._epoch += 1
        self._listener.on_failed(error)

    def _end(self) -> None:
        self._ended.set()
        # After an orderly end nothing is pending; if a bug ended the thread, no writer may wait for ever.
        self._begin_epoch(_stopped())

    def _report(self, call: Callable[[], None]) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop ended without closing the store.
            logger.warning("Event loop ended before the store was closed")


def _stopped() -> StorageUnavailable:
    return StorageUnavailable("the store's writer has stopped", cured_by_restart=True)
