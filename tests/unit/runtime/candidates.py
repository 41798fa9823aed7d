"""Processes that compete for one Lease, for tests of leader election."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from bramley.api.coordination import Lease
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.runtime.keys import Key
from bramley.runtime.leader_election import LeaderElectionSettings, LeaderElector, Leadership
from bramley.runtime.metrics import RuntimeMetrics
from tests import virtual_time
from tests.unit.runtime.fake_api import FakeApi
from tests.unit.runtime.informer_harness import some_metrics, until

LEASE = "controllers"


class Skewed:
    """A clock that is off by a day and runs too fast or too slow."""

    def __init__(self, rate: float = 1.0, off: timedelta = timedelta()) -> None:
        self._true = virtual_time.clock()
        self._rate = rate
        self._off = off

    def now(self) -> datetime:
        return self._true.now() + self._off

    def monotonic(self) -> float:
        return self._true.monotonic() * self._rate


class Candidate:
    """One process that wants to lead; `pause` stops it like SIGSTOP does."""

    def __init__(self, server: FakeApi, name: str, clock: Clock | None = None) -> None:
        self.metrics: RuntimeMetrics = some_metrics()
        self.clock = clock or virtual_time.clock()
        self.election = LeaderElector(
            LeaderElectionSettings("ns", LEASE, name),
            server,
            clock=self.clock,
            rng=random.Random(name),
            metrics=self.metrics,
        )
        self.leadership: Leadership | None = None
        self.lost_at: float | None = None

    async def run(self) -> None:
        self.leadership = await self.election.acquire()
        try:
            await self.election.renew_until_lost(self.leadership)
        except errors.LeaseLost:
            self.lost_at = asyncio.get_running_loop().time()

    @property
    def acts(self) -> bool:
        with suppress(errors.LeaseLost):
            if self.leadership:
                self.leadership.check()
                return True
        return False


@asynccontextmanager
async def contest(*candidates: Candidate) -> AsyncIterator[list[asyncio.Task[None]]]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(candidate.run()) for candidate in candidates]
        yield tasks
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def leading() -> AsyncIterator[tuple[FakeApi, Candidate, asyncio.Task[None]]]:
    server = FakeApi()
    leader = Candidate(server, "leader")
    async with contest(leader) as [task]:
        await until(lambda: leader.acts)
        yield server, leader, task


def the_lease(server: FakeApi) -> Lease:
    lease = server.things[Lease, Key("ns", LEASE)]
    assert isinstance(lease, Lease)
    return lease
