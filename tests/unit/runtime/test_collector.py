from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, gc, random
from prometheus_client import CollectorRegistry
from bramley.base.clock import SystemClock
from bramley.runtime.manager import Manager, ManagerSettings

async def main(calm):
    settings = ManagerSettings(calm_collector=calm)
    manager = Manager(
        None, clock=SystemClock(), rng=random.Random(1), registry=CollectorRegistry(), settings=settings
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        await manager.ready.wait()
        manager.stop()

asyncio.run(main({calm}))
print(gc.get_threshold()[0], gc.get_freeze_count() > 0)
"""


def collector_after_a_start(*, calm: bool) -> str:
    program = PROGRAM.replace("{calm}", str(calm))
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return told.stdout.strip()


def test_manager_calms_the_collector_of_its_process() -> None:
    assert collector_after_a_start(calm=True) == "20000 True"


def test_manager_leaves_the_collector_alone_when_told() -> None:
    assert collector_after_a_start(calm=False).split()[0] == "700"
