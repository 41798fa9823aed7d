"""Readers share the lock, a writer holds it alone, and a waiting writer delays no reader."""

from __future__ import annotations

import asyncio

import pytest

from bramley.agent.shared_lock import SharedLock


async def test_readers_share_and_a_writer_waits_for_all_of_them() -> None:
    lock, seen = SharedLock(), []

    async def read(name: str, seconds: float) -> None:
        async with lock.shared():
            seen.append(name)
            await asyncio.sleep(seconds)

    async def write() -> None:
        async with lock.exclusive():
            seen.append("writer")
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        group.create_task(read("one", 1))
        group.create_task(read("two", 3))
        await asyncio.sleep(0.1)
        group.create_task(write())
        await asyncio.sleep(0.1)
        group.create_task(read("three", 1))
        await asyncio.sleep(3)
        group.create_task(read("four", 1))

    assert seen == ["one", "two", "three", "writer", "four"]
    assert not lock.is_held


async def test_two_writers_take_turns() -> None:
    lock, inside = SharedLock(), []

    async def write() -> None:
        async with lock.exclusive():
            inside.append(1)
            await asyncio.sleep(1)
            inside.append(-1)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(write())

    assert inside == [1, -1] * 3


@pytest.mark.parametrize("shared", [True, False])
async def test_cancelled_waiter_leaves_the_lock_free(shared: bool) -> None:
    lock = SharedLock()
    await lock.acquire(shared=False)
    waiting = asyncio.create_task(lock.acquire(shared=shared))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    lock.release(shared=False)

    assert not lock.is_held
