"""Jobs of a modelled fleet: when they were queued, started and finished, and a seeded source of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from bramley.base.clock import Clock


@dataclass(slots=True, eq=False)
class Job:
    """One job and its times; `lost` counts the runners that were stopped under it."""

    label: str
    duration: timedelta
    queued_at: datetime
    account: str = "acme"
    started_at: datetime | None = None
    finished_at: datetime | None = None
    pod: str = ""
    image: str = ""
    has_failed: bool = False
    lost: int = 0

    def delay(self, now: datetime) -> timedelta:
        """Return how long the job waited, or waits until now."""
        return (self.started_at or now) - self.queued_at


class JobQueue(Protocol):
    """Takes jobs; the dispatch model does."""

    def enqueue(self, job: Job) -> None:
        """Queue a job."""


@dataclass(slots=True, eq=False)
class JobSource:
    """Queues jobs at random times: independent arrivals, lognormal durations."""

    queue: JobQueue
    label: str
    _: KW_ONLY
    clock: Clock
    per_hour: float
    median: timedelta = timedelta(minutes=15)
    sigma: float = 0.6
    seed: int = 0
    jobs: list[Job] = field(default_factory=list)

    async def run(self) -> None:
        """Queue jobs until cancelled."""
        # Its own generator: the same jobs arrive whatever else the run draws.
        rng = random.Random(f"jobs/{self.seed}")
        loop = asyncio.get_running_loop()
        arrival = loop.time()
        while True:
            arrival += rng.expovariate(self.per_hour / 3600)
            duration = self.median * rng.lognormvariate(0.0, self.sigma)
            await asyncio.sleep(max(0.0, arrival - loop.time()))
            job = Job(self.label, duration, self.clock.now())
            self.jobs.append(job)
            self.queue.enqueue(job)


def delayed(jobs: Sequence[Job], *, beyond: timedelta, now: datetime) -> list[Job]:
    """Return the jobs that waited longer than this for a runner."""
    return [job for job in jobs if job.delay(now) > beyond]
