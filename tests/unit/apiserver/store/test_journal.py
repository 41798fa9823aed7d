"""How changes reach the disk: in groups, in order, reported only when durable, never built on a failure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.journal import InlineJournal, ThreadedJournal
from bramley.apiserver.store.records import Change, Key
from bramley.apiserver.store.store import Store
from tests.unit.apiserver.store.doubles import (
    OTHER_POD,
    POD,
    RecordingDisk,
    put,
    put_of_size,
    started,
)

WAIT = 5.0

pytestmark = pytest.mark.real_time


class Gate:
    """Holds the writer thread at each commit until the test lets it through, or makes it fail."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self._go = threading.Semaphore(0)
        self._error: Exception | None = None

    def __call__(self, _: Sequence[Change]) -> None:
        self.arrived.release()
        assert self._go.acquire(timeout=WAIT)
        if self._error:
            error, self._error = self._error, None
            raise error

    def open(self, times: int = 1) -> None:
        self._go.release(times)

    def fail(self, error: Exception) -> None:
        self._error = error
        self._go.release()

    async def wait(self) -> None:
        """Wait until the writer thread stands at the gate."""
        async with asyncio.timeout(WAIT):
            while not self.arrived.acquire(blocking=False):
                await asyncio.sleep(0.001)


@asynccontextmanager
async def threaded(
    before: Callable[[Sequence[Change]], None], *, group_bytes: int = 10**6
) -> AsyncIterator[tuple[Store, RecordingDisk]]:
    disk = RecordingDisk(before)
    store = Store(partial(ThreadedJournal, disk, group_bytes=group_bytes))
    async with asyncio.timeout(2 * WAIT), store:
        yield store, disk


async def test_writes_that_queue_up_during_a_commit_share_the_next_one() -> None:
    gate = Gate()
    async with threaded(gate) as (store, disk):
        writes = [await started(store.write(POD, put))]
        await gate.wait()
        keys = [Key("pods", "default", f"{number}") for number in range(5)]
        writes += [await started(store.write(key, put)) for key in keys]
        gate.open(2)

        assert [(await write).rv for write in writes] == [1, 2, 3, 4, 5, 6]
        assert disk.groups == [[1], [2, 3, 4, 5, 6]]


async def test_nothing_is_acknowledged_before_the_disk_has_it() -> None:
    gate = Gate()
    async with threaded(gate) as (store, _):
        write = await started(store.write(POD, put))
        await gate.wait()
        await asyncio.sleep(0.02)

        assert not write.done()
        assert store.get(POD) is None
        gate.open()
        assert (await write).rv == 1


async def test_commit_group_is_limited_in_size() -> None:
    gate = Gate()
    async with threaded(gate, group_bytes=5_000) as (store, disk):
        first = await started(store.write(POD, put))
        await gate.wait()
        writes = [await started(store.write(OTHER_POD, put_of_size(1_000))) for _ in range(4)]
        gate.open(4)

        assert [(await write).rv for write in (first, *writes)] == [1, 2, 3, 4, 5]
        assert disk.groups == [[1], [2, 3], [4, 5]]


async def test_writes_queued_behind_a_failed_commit_are_not_committed() -> None:
    gate = Gate()
    async with threaded(gate) as (store, disk):
        lost = [await started(store.write(POD, put))]
        await gate.wait()
        lost += [await started(store.write(POD, put)) for _ in range(3)]
        gate.fail(StorageUnavailable("the disk is full"))

        for write in lost:
            with pytest.raises(StorageUnavailable, match="full"):
                await write
        gate.open()
        assert (await store.write(POD, put)).rv == 5
        assert disk.groups == [[5]]


async def test_closing_commits_what_was_submitted() -> None:
    gate = Gate()
    async with threaded(gate) as (store, disk):
        first = await started(store.write(POD, put))
        await gate.wait()
        second = await started(store.write(OTHER_POD, put))
        gate.open(2)
        await store.close()

        assert disk.closed
        assert disk.groups == [[1], [2]]
        assert (await first, await second) == tuple(store.list("pods"))


async def test_a_store_that_was_never_written_closes() -> None:
    async with asyncio.timeout(WAIT):
        async with threaded(lambda _: None) as (_, disk):
            pass

    assert disk.closed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_writer_killed_by_a_bug_leaves_no_waiter() -> None:
    gate = Gate()
    disk = RecordingDisk(gate)
    store = Store(partial(ThreadedJournal, disk, group_bytes=10**6))
    first = await started(store.write(POD, put))
    await gate.wait()
    second = await started(store.write(OTHER_POD, put))

    gate.fail(ZeroDivisionError())

    async with asyncio.timeout(WAIT):
        for write in (first, second):
            with pytest.raises(StorageUnavailable, match="stopped"):
                await write
        with pytest.raises(StorageUnavailable, match="stopped"):
            await store.write(POD, put)
        await store.close()


def test_a_writer_outlives_a_loop_that_ended_without_closing() -> None:
    gate = Gate()
    disk = RecordingDisk(gate)
    store = Store(partial(ThreadedJournal, disk, group_bytes=10**6))

    async def write_and_leave() -> None:
        writing = await started(store.write(POD, put))
        await gate.wait()
        writing.cancel()

    asyncio.run(write_and_leave())
    gate.open()
    asyncio.run(store.close())

    assert disk.groups == [[1]]
    assert disk.closed


async def test_an_inline_journal_reports_a_failure_within_the_call() -> None:
    def before(_: Sequence[Change]) -> None:
        raise StorageUnavailable("the disk is full")

    store = Store(partial(InlineJournal, RecordingDisk(before)))

    with pytest.raises(StorageUnavailable, match="full"):
        await store.write(POD, put)
    assert store.list("pods") == []
    await store.close()
