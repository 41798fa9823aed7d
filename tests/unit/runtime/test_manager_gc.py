from __future__ import annotations

import sys

from tests.programs import run_program

PROGRAM = """
import asyncio, gc, random
from prometheus_client import CollectorRegistry
from bramley.base.clock import SystemClock
from bramley.runtime.manager import Manager, ManagerSettings

async def main(tune):
    settings = ManagerSettings(tune_gc=tune)
    manager = Manager(
        None, clock=SystemClock(), rng=random.Random(1), registry=CollectorRegistry(), settings=settings
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        await manager.ready.wait()
        manager.stop()

asyncio.run(main({tune}))
print(gc.get_threshold()[0], gc.get_freeze_count() > 0)
"""


def gc_after_a_start(*, tune: bool) -> str:
    program = PROGRAM.replace("{tune}", str(tune))
    ended = run_program([sys.executable, "-c", program], check=True, timeout=60)
    return ended.stdout.strip()


def test_manager_tunes_the_garbage_collector() -> None:
    assert gc_after_a_start(tune=True) == "20000 True"


def test_manager_leaves_the_garbage_collector_alone_without_the_setting() -> None:
    assert gc_after_a_start(tune=False).split()[0] == "700"
