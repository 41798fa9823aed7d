"""Runnables start when the caches are synced and end when the manager stops."""

from __future__ import annotations

import asyncio
import random

from prometheus_client import CollectorRegistry

from bramley.app import embedded
from bramley.base.clock import SystemClock
from bramley.kube.client import Client
from bramley.runtime.manager import Manager, ManagerSettings


async def test_runnable_runs_until_the_manager_stops() -> None:
    calls: list[str] = []

    async def runnable() -> None:
        calls.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            calls.append("ended")

    async with embedded.running(clock=SystemClock()) as (api, token):
        client = Client(api.transport(token))
        manager = Manager(
            client,
            clock=SystemClock(),
            rng=random.Random(1),
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False),
        )
        manager.add_runnable(runnable)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            await asyncio.sleep(1)
            before = list(calls)
            manager.stop()

    assert before == ["started"]
    assert calls == ["started", "ended"]
