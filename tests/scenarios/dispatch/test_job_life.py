"""The whole life of jobs: webhook, queue, poll, runner, end, replacement."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from tests.dispatch_world import LONG_POLL, OLD_POLL, a_dispatch_world


@pytest.mark.parametrize("wait", [OLD_POLL, LONG_POLL], ids=["old poller", "long poll"])
async def test_queued_job_runs_once_on_an_idle_vm(tmp_path: Path, wait: timedelta) -> None:
    async with a_dispatch_world(tmp_path) as world:
        pod = await world.a_pod()
        world.boot(pod, wait=wait)
        await asyncio.sleep(5)
        job = world.queue_job()

        await world.until_all_completed()
        await asyncio.sleep(5)

        assert world.ran == [(pod.name, job.id)]
        timeline = await world.store.timeline(job.id)
        assert timeline.job.state == "completed"
        assert timeline.execution is not None
        assert [claim.outcome for claim in timeline.claims] == ["success"]


async def test_a_hundred_jobs_run_once_each(tmp_path: Path) -> None:
    async with a_dispatch_world(tmp_path, picks_randomly=True) as world:
        for _ in range(5):
            world.boot(await world.a_pod(), replace=True)
        jobs = [world.queue_job(seconds=20) for _ in range(100)]

        await world.until_all_completed()

        assert Counter(job for _, job in world.ran) == Counter(job.id for job in jobs)
