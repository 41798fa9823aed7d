from __future__ import annotations

import asyncio
from pathlib import Path

from bramley.sim.mac.processes import Locks, Process, Table
from tests import virtual_time


async def forever(_: Process) -> int:
    await asyncio.get_running_loop().create_future()
    return 0


async def test_waiters_get_the_lock_in_order_and_dead_ones_are_skipped(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        table, locks = Table(group, virtual_time.clock()), Locks()
        processes = [table.spawn((str(number),), forever) for number in range(4)]
        order = []

        async def wait(process: Process) -> None:
            await locks.acquire(str(tmp_path), process)
            order.append(process.argv[0])

        assert locks.try_acquire(str(tmp_path), processes[0])
        for process in processes[1:]:
            group.create_task(wait(process))
            await asyncio.sleep(0)
        table.kill(processes[2].pid)
        locks.release(str(tmp_path), processes[0])
        await asyncio.sleep(0)
        table.kill(processes[1].pid)
        await asyncio.sleep(0)

        assert order == ["1", "3"]
        table.clear()
        assert locks.holder(str(tmp_path)) is None
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def test_lock_stays_with_the_file_after_a_rename(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        table, locks = Table(group, virtual_time.clock()), Locks()
        process = table.spawn(("tart",), forever)
        place = tmp_path / "a"
        place.mkdir()
        locks.try_acquire(str(place), process)

        place.rename(tmp_path / "b")
        place.mkdir()

        assert locks.holder(str(place)) is None
        assert locks.holder(str(tmp_path / "b")) is process
        locks.release(str(place), process)
        assert locks.holder(str(tmp_path / "b")) is None
        table.clear()
