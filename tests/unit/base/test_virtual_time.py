from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests import virtual_time


def test_virtual_year_takes_no_real_time() -> None:
    async def scenario() -> float:
        await asyncio.sleep(364 * 86_400)
        return asyncio.get_running_loop().time()

    assert virtual_time.run(scenario()) == pytest.approx(364 * 86_400)


def order_of_ties(seed: int) -> list[int]:
    async def scenario() -> list[int]:
        seen: list[int] = []
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(append_later(seen, number))
        return seen

    async def append_later(seen: list[int], number: int) -> None:
        await asyncio.sleep(1)
        seen.append(number)

    return virtual_time.run(scenario(), seed=seed)


def test_seed_determines_the_order_of_ties() -> None:
    orders = {tuple(order_of_ties(seed)) for seed in range(10)}

    assert len(orders) > 5
    assert order_of_ties(3) == order_of_ties(3)


def test_timers_fire_in_order_and_each_at_its_time() -> None:
    async def scenario() -> list[float]:
        seen: list[float] = []
        loop = asyncio.get_running_loop()
        for delay in (3.0, 1.0, 2.0):
            loop.call_later(delay, lambda: seen.append(loop.time()))
        await asyncio.sleep(4)
        return seen

    assert virtual_time.run(scenario()) == [1.0, 2.0, 3.0]


def test_a_hang_names_the_task_and_where_it_waits() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever(), name="passenger")

    with pytest.raises(virtual_time.Hung, match="passenger") as caught:
        virtual_time.run(scenario())
    assert "waits_for_ever" in str(caught.value)


def test_a_scenario_that_never_ends_is_stopped_at_its_limit() -> None:
    async def scenario() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(virtual_time.Hung, match="limit of 3600"):
        virtual_time.run(scenario(), limit=timedelta(hours=1))


async def test_sockets_processes_and_threads_are_refused() -> None:
    loop = asyncio.get_running_loop()

    with pytest.raises(virtual_time.RefusedUnderVirtualTime):
        await asyncio.open_connection("127.0.0.1", 1)
    with pytest.raises(virtual_time.RefusedUnderVirtualTime):
        await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    with pytest.raises(virtual_time.RefusedUnderVirtualTime):
        await asyncio.create_subprocess_exec("true")
    with pytest.raises(virtual_time.RefusedUnderVirtualTime):
        await loop.run_in_executor(None, print)


async def test_the_virtual_clock_shows_the_loops_time() -> None:
    clock = virtual_time.clock()
    before = clock.now()

    await asyncio.sleep(90)

    assert clock.now() - before == timedelta(seconds=90)
