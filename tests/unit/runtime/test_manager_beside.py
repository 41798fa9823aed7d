"""Jobs beside the workers: they start when the caches are there and end when the manager stops."""

from __future__ import annotations

import asyncio
import random

from prometheus_client import CollectorRegistry

from bramley.app import embedded
from bramley.base.clock import SystemClock
from bramley.kube.client import Client
from bramley.runtime.manager import Manager, ManagerSettings


async def test_job_beside_the_workers_runs_until_the_manager_stops() -> None:
    told: list[str] = []

    async def job() -> None:
        told.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            told.append("ended")

    async with embedded.running(clock=SystemClock()) as (api, token):
        client = Client(api.transport(token))
        manager = Manager(
            client,
            clock=SystemClock(),
            rng=random.Random(1),
            registry=CollectorRegistry(),
            settings=ManagerSettings(calm_collector=False),
        )
        manager.beside(job)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            await asyncio.sleep(1)
            before = list(told)
            manager.stop()

    assert before == ["started"]
    assert told == ["started", "ended"]
