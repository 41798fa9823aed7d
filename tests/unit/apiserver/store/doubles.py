"""Journals and disks that tests control: a commit happens or fails on command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.journal import Disk, Listener, NoDisk
from bramley.apiserver.store.records import Build, Change, Draft, Key, Record, Removal
from bramley.apiserver.store.store import Store

POD = Key("pods", "default", "a")
OTHER_POD = Key("pods", "default", "b")
NODE = Key("nodes", "", "mac-1")


class Refusal(Exception):
    """What a build function raises when it says no."""


def put(_: Record | None, rv: int) -> Draft:
    return Draft(b'{"rv":%d}' % rv)


def remove(_: Record | None, rv: int) -> Removal:
    return Removal(b'{"rv":%d}' % rv)


def keep(_: Record | None, _rv: int) -> None:
    return None


def refuse(_: Record | None, _rv: int) -> Draft:
    raise Refusal


def put_of_size(size: int) -> Build:
    return lambda _, _rv: Draft(b"x" * size)


class SteppedJournal:
    """Holds changes back until the test commits or fails them."""

    def __init__(self, disk: Disk, listener: Listener) -> None:
        self.disk = disk
        self.waiting: list[Change] = []
        self._listener = listener

    def submit(self, change: Change) -> None:
        self.waiting.append(change)

    def commit(self, count: int | None = None) -> None:
        """Make the oldest changes durable as one group."""
        group = self.waiting[:count]
        del self.waiting[:count]
        if group:
            self.disk.commit(group)
            self._listener.on_committed(len(group))

    def fail(self) -> None:
        """Fail what waits, as a full disk does."""
        self.waiting.clear()
        self._listener.on_failed(StorageUnavailable("the disk is full"))

    async def close(self) -> None:
        self.commit()
        self.disk.close()


def stepped_store(**options: Any) -> tuple[Store, SteppedJournal]:
    """Return a store in memory whose commits the test makes."""
    made: list[SteppedJournal] = []

    def open_journal(listener: Listener) -> SteppedJournal:
        made.append(SteppedJournal(NoDisk(), listener))
        return made[0]

    store = Store(open_journal, **options)
    return store, made[0]


async def started(work: Coroutine[Any, Any, Record]) -> asyncio.Task[Record]:
    """Start a write and let it come to where it waits."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    return task


class RecordingDisk:
    """A disk that remembers its groups and asks the test before each commit."""

    def __init__(self, before: Callable[[Sequence[Change]], None] = lambda _: None) -> None:
        self.groups: list[list[int]] = []
        self.closed = False
        self._before = before

    def commit(self, group: Sequence[Change]) -> None:
        self._before(group)
        self.groups.append([change.rv for change in group])

    def close(self) -> None:
        self.closed = True
