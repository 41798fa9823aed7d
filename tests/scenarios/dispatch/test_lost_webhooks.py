"""Webhooks that failed are redelivered, those that GitHub never sent are found by its lists, and its limits are respected."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bramley.base.clock import Clock
from bramley.kube.transport import Request, Response
from bramley.sim.github.faults import Fault
from bramley.sim.github.webhooks import DeliverySettings
from tests.dispatch_world import a_dispatch_world

DELIVERIES = "/app/hook/deliveries"


@dataclass
class Recorded:
    """The times of the requests of the list of deliveries; the client's other members are unchanged."""

    transport: Any
    clock: Clock
    times: list[datetime] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        if request.method == "GET" and request.path.endswith(DELIVERIES):
            self.times.append(self.clock.now())
        response: Response = await self.transport.send(request)
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


async def test_webhooks_of_an_outage_are_redelivered(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        jobs = [world.queue_job() for _ in range(5)]
        await asyncio.sleep(600)
        await world.start()
        for _ in range(2):
            world.boot(await world.a_pod(), replace=True)

        await world.until_all_completed()

        assert sorted(job for _, job in world.ran) == [job.id for job in jobs]
        redelivered = [each for each in world.github.webhooks.deliveries if each.is_redelivery]
        assert len(redelivered) == 5
        assert {each.status_code for each in redelivered} == {200}


async def test_jobs_run_once_although_half_of_the_webhooks_are_lost(tmp_path: Path) -> None:
    unreliable = DeliverySettings(max_delay=30, loss=0.5, duplicates=0.3)
    async with a_dispatch_world(tmp_path, deliveries=unreliable) as world:
        for _ in range(3):
            world.boot(await world.a_pod(), replace=True)
        jobs = [world.queue_job() for _ in range(20)]

        await world.until_all_completed()
        await asyncio.sleep(1800)

        assert sorted(job for _, job in world.ran) == [job.id for job in jobs]
        states = {(await world.store.timeline(job.id)).job.state for job in jobs}
        assert states == {"completed"}


async def test_jobs_without_any_webhook_are_found_in_the_runs(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path) as world:
        # The sweep searches repositories that had a job lately.
        first = world.queue_job()
        world.boot(await world.a_pod(), replace=True)
        await world.until_all_completed()
        hook, world.github.webhooks.hook = world.github.webhooks.hook, None
        missed = world.queue_job()
        world.github.webhooks.hook = hook

        await world.until_all_completed(timedelta(minutes=15))

        assert [job for _, job in world.ran] == [first.id, missed.id]


async def test_sweep_waits_as_long_as_github_limits_it(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, start=False) as world:
        recorded: list[Recorded] = []

        def record(transport: Any) -> Recorded:
            recorded.append(Recorded(transport, world.clock))
            return recorded[-1]

        world.wrap = record
        limit = Fault(kind="secondary_limit", path=f"*{DELIVERIES}", seconds=900)
        world.github.faults.add(limit)
        await world.start()

        await asyncio.sleep(3600)

        times = sorted(time for each in recorded for time in each.times)
        assert times[1] - times[0] >= timedelta(seconds=900)
        assert len(times) > 10
