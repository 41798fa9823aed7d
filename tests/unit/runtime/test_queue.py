from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from bramley.base.backoff import Backoff
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.queue import Priority, QueueMetrics, ShutDown, WorkQueue
from tests import virtual_time
from tests.unit.runtime.informer_harness import running, some_metrics, value


def a_queue(metrics: RuntimeMetrics | None = None) -> WorkQueue[str]:
    return WorkQueue(
        clock=virtual_time.clock(),
        rng=random.Random(1),
        metrics=QueueMetrics(metrics or some_metrics(), "test"),
        backoff=Backoff(timedelta(seconds=1), timedelta(seconds=10), jitter=0.0),
    )


async def drained(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        key = await queue.get()
        taken.append(key)
        queue.done(key)
    return taken


async def test_key_added_twice_is_taken_once() -> None:
    queue = a_queue()
    queue.add("a")
    queue.add("b")
    queue.add("a")

    assert await drained(queue) == ["a", "b"]


async def test_key_added_while_it_is_processed_waits_again() -> None:
    queue = a_queue()
    queue.add("a")
    key = await queue.get()

    queue.add("a")
    queue.add("a")

    assert len(queue) == 1
    queue.done(key)
    assert await drained(queue) == ["a"]


async def test_key_in_process_is_not_handed_out_again() -> None:
    queue = a_queue()
    queue.add("a")
    await queue.get()
    queue.add("a")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await queue.get()


async def test_blocked_key_leaves_the_others_alone() -> None:
    queue = a_queue()
    queue.add("blocked")
    await queue.get()
    queue.add("blocked")
    queue.add("free")

    assert await queue.get() == "free"


async def test_deletions_go_before_changes_and_changes_before_resyncs() -> None:
    queue = a_queue()
    queue.add("resync", Priority.RESYNC)
    queue.add("change", Priority.CHANGE)
    queue.add("deletion", Priority.DELETION)

    assert await drained(queue) == ["deletion", "change", "resync"]


async def test_waiting_key_rises_when_it_becomes_urgent() -> None:
    queue = a_queue()
    for key in ("a", "b", "c"):
        queue.add(key, Priority.RESYNC)
    queue.add("c", Priority.DELETION)
    queue.add("c", Priority.RESYNC)

    assert await drained(queue) == ["c", "a", "b"]


async def test_urgency_gained_in_process_is_kept() -> None:
    queue = a_queue()
    queue.add("a")
    await queue.get()
    queue.add("a", Priority.RESYNC)
    queue.add("a", Priority.DELETION)
    queue.add("b", Priority.CHANGE)
    queue.done("a")

    assert await drained(queue) == ["a", "b"]


async def test_flood_of_changes_does_not_starve_resyncs() -> None:
    queue = a_queue()
    queue.add("patient", Priority.RESYNC)
    taken = []
    for number in range(40):
        queue.add(f"change-{number}")
        key = await queue.get()
        taken.append(key)
        queue.done(key)

    assert "patient" in taken


async def test_delayed_add_keeps_the_earliest_time() -> None:
    queue = a_queue()
    queue.add_after("a", timedelta(seconds=20))
    queue.add_after("a", timedelta(seconds=5))
    queue.add_after("a", timedelta(seconds=50))

    assert await queue.get() == "a"

    assert asyncio.get_running_loop().time() == pytest.approx(5)
    queue.done("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await queue.get()


async def test_delayed_adds_come_in_order_of_time() -> None:
    queue = a_queue()
    queue.add_after("late", timedelta(seconds=3))
    queue.add_after("early", timedelta(seconds=1))
    queue.add("now")

    assert [await queue.get() for _ in range(3)] == ["now", "early", "late"]


async def test_retries_of_a_key_back_off_until_it_is_forgotten() -> None:
    queue = a_queue()

    delays = [queue.add_rate_limited("a").total_seconds() for _ in range(6)]
    queue.forget("a")
    again = queue.add_rate_limited("a").total_seconds()

    assert delays == [1, 2, 4, 8, 10, 10]
    assert again == 1


async def test_one_failing_key_does_not_slow_another() -> None:
    queue = a_queue()
    for _ in range(5):
        queue.add_rate_limited("bad")

    assert queue.add_rate_limited("good") == timedelta(seconds=1)


async def test_waiting_worker_is_woken_by_an_add() -> None:
    queue = a_queue()
    got: list[str] = []

    async def work() -> None:
        got.append(await queue.get())

    async with running(work(), work()):
        await asyncio.sleep(1)
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1)

    assert sorted(got) == ["a", "b"]


@pytest.mark.parametrize("is_cancelled_first", [False, True])
async def test_key_goes_to_another_worker_than_the_cancelled_one(is_cancelled_first: bool) -> None:
    queue = a_queue()
    got: list[str] = []

    async def work() -> None:
        got.append(await queue.get())

    async with asyncio.TaskGroup() as group:
        first, _second = group.create_task(work()), group.create_task(work())
        await asyncio.sleep(0)
        steps: list[Callable[[], object]] = [lambda: queue.add("a"), first.cancel]
        for step in reversed(steps) if is_cancelled_first else steps:
            step()

    assert got == ["a"]


async def test_shut_down_wakes_every_worker_and_drops_what_waits() -> None:
    queue = a_queue()
    ended: list[str] = []

    async def work() -> None:
        with pytest.raises(ShutDown):
            await queue.get()
        ended.append("ended")

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(work())
        await asyncio.sleep(0)
        queue.add_after("later", timedelta(seconds=1))
        queue.shut_down()
    queue.add("late")

    assert ended == ["ended"] * 3
    with pytest.raises(ShutDown):
        await queue.get()


async def test_take_returns_a_waiting_key_without_blocking() -> None:
    queue = a_queue()
    assert queue.take() is None
    queue.add("a")

    assert queue.take() == "a"
    assert queue.take() is None


async def test_closed_queue_returns_no_keys() -> None:
    queue = a_queue()
    queue.add("a")
    queue.shut_down()

    assert queue.take() is None


async def test_done_returns_when_the_key_was_taken() -> None:
    queue = a_queue()
    queue.add("a")
    await asyncio.sleep(2)
    await queue.get()
    taken = virtual_time.clock().monotonic()
    await asyncio.sleep(3)

    assert queue.done("a") == taken


async def test_metrics_show_depth_latency_retries_and_the_longest_run() -> None:
    metrics = some_metrics()
    queue = a_queue(metrics)
    queue.add("a")
    queue.add("b")
    await asyncio.sleep(2)
    await queue.get()
    await asyncio.sleep(3)
    queue.add_rate_limited("c")

    def read(name: str) -> float:
        return value(metrics, name, controller="test")

    assert read("bramley_queue_depth") == 1
    assert read("bramley_queue_adds_total") == 2
    assert read("bramley_queue_latency_seconds_sum") == pytest.approx(2)
    assert read("bramley_queue_retries_total") == 1
    assert read("bramley_queue_longest_running_seconds") == pytest.approx(3)
