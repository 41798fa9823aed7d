"""A queue in SQLite under virtual time, a forge and an API server whose answers the test sets, and the recovery on them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from bramley.base.errors import BramleyError
from bramley.base.secret import Secret
from bramley.dispatch.forge import FailedDelivery, NewRunner, RunnerState
from bramley.dispatch.jobs import Phase, Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.recovery import PodState, Recovery, Settings
from bramley.dispatch.store.records import Claim, Pod
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store
from tests import virtual_time

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
POOL = "macos"


@dataclass
class FakeForge:
    """A forge that knows the truth, or fails with `error`, for all accounts or for one."""

    jobs: dict[int, Report] = field(default_factory=dict)
    runners: dict[int, tuple[str, RunnerState]] = field(default_factory=dict)
    failed: list[FailedDelivery] = field(default_factory=list)
    redelivered: list[int] = field(default_factory=list)
    listed_since: list[datetime] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    errors: dict[str, BramleyError] = field(default_factory=dict)  # by account; "" for deliveries
    calls: Counter[str] = field(default_factory=Counter)
    is_short: bool = False

    def _check(self, account: str, call: str) -> None:
        self.calls[call] += 1
        if error := self.errors.get(account.partition("/")[0]):
            raise error

    async def create_runner(self, repository: str, name: str, labels: Sequence[str]) -> NewRunner:
        raise NotImplementedError

    async def runner_state(self, repository: str, runner_id: int, name: str) -> RunnerState:
        self._check(repository, "runner_state")
        known, state = self.runners.get(runner_id, ("", RunnerState.GONE))
        return state if known == name else RunnerState.GONE

    async def find_runner(self, repository: str, name: str) -> int | None:
        self._check(repository, "find_runner")
        return next((key for key, (known, _) in self.runners.items() if known == name), None)

    async def remove_runner(self, repository: str, runner_id: int) -> bool:
        self._check(repository, "remove_runner")
        if self.runners.get(runner_id, ("", RunnerState.GONE))[1] == RunnerState.BUSY:
            return False
        self.runners.pop(runner_id, None)
        return True

    async def job(self, repository: str, job_id: int) -> Report | None:
        self._check(repository, "job")
        return self.jobs.get(job_id)

    async def unfinished_jobs(self, repository: str) -> Sequence[Report]:
        self._check(repository, "unfinished_jobs")
        self.searched.append(repository)
        of_repository = [each for each in self.jobs.values() if each.repository == repository]
        return [each for each in of_repository if each.phase in (Phase.QUEUED, Phase.IN_PROGRESS)]

    async def failed_deliveries(self, since: datetime) -> Sequence[FailedDelivery]:
        self._check("", "failed_deliveries")
        self.listed_since.append(since)
        return [each for each in self.failed if each.delivered_at >= since]

    async def redeliver(self, delivery_id: int) -> None:
        self._check("", "redeliver")
        self.redelivered.append(delivery_id)

    def is_short_of_requests(self, _repository: str) -> bool:
        return self.is_short

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        raise NotImplementedError


@dataclass
class FakePods:
    """The API server: every Pod runs unless the test says otherwise."""

    states: dict[str, PodState] = field(default_factory=dict)

    async def pod_state(self, name: str, uid: str) -> PodState:
        assert name == uid.replace("uid", "runner")
        return self.states.get(uid, PodState.ALIVE)


@dataclass
class World:
    """The queue, its two witnesses, and the recovery."""

    store: Store
    forge: FakeForge
    pods: FakePods
    recovery: Recovery
    recovered: list[str]
    pool: str = POOL
    pools: set[str] = field(default_factory=lambda: {POOL})

    @property
    def now(self) -> datetime:
        return self.recovery.clock.now()

    def route(self, _labels: Sequence[str], _account: str) -> Route:
        return Route(self.pool, problem="" if self.pool else "no pool")

    async def pass_time(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())

    def report(
        self, job_id: int, phase: Phase = Phase.QUEUED, *, account: str = "acme", runner: str = ""
    ) -> Report:
        """Return what the forge knows of a job, which is also the truth from now on."""
        known = self.forge.jobs.get(job_id)
        report = Report(
            job_id=job_id,
            phase=phase,
            account=account,
            repository=f"{account}/app",
            labels=("tuist-macos",),
            runner_name=runner,
            queued_at=known.queued_at if known else self.now,
            started_at=self.now if phase >= Phase.IN_PROGRESS else None,
            completed_at=self.now if phase == Phase.COMPLETED else None,
            conclusion="success" if phase == Phase.COMPLETED else "",
        )
        self.forge.jobs[job_id] = report
        return report

    async def queue(self, *job_ids: int, account: str = "acme") -> None:
        for job_id in job_ids:
            report = self.report(job_id, account=account)
            await self.store.apply_report(report, self.route((), account), self.now)

    async def claim(self, number: int) -> Claim:
        claim = await self.store.claim(a_pod(number), POOL, self.now)
        assert claim is not None
        return claim

    async def stamp(self, number: int) -> Claim:
        claim = await self.claim(number)
        assert await self.store.stamp(claim.handle, f"gh-{number}", self.now)
        return claim

    async def mint(self, number: int, runner: RunnerState = RunnerState.OFFLINE) -> Claim:
        """Return the claim of a Pod that holds a JIT config, whose runner the forge reports in this state."""
        claim = await self.stamp(number)
        runner_id = 100 + number
        name = f"gh-{number}"
        assert await self.store.mint(claim.handle, name, Secret("jit"), runner_id, self.now)
        if runner != RunnerState.GONE:
            self.forge.runners[runner_id] = (name, runner)
        return claim

    def set_runner(self, number: int, state: RunnerState) -> None:
        self.forge.runners[100 + number] = (f"gh-{number}", state)

    def set_pod(self, number: int, state: PodState) -> None:
        self.pods.states[f"uid-{number}"] = state

    async def job_state(self, job_id: int) -> State:
        return (await self.store.timeline(job_id)).job.state

    async def newest_claim(self, number: int) -> Claim:
        claim = await self.store.find_claim(f"uid-{number}")
        assert claim is not None
        return claim


def a_pod(number: int) -> Pod:
    return Pod(f"runner-{number}", f"uid-{number}", f"mac-{number}", "image:1")


class UnsyncedConnection(sqlite3.Connection):
    """A connection for tests that need no durability."""

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        if sql.lower().startswith("pragma synchronous"):
            sql = "PRAGMA synchronous = OFF"
        return super().execute(sql, parameters)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def a_world(tmp_path: Path, settings: Settings | None = None) -> AsyncIterator[World]:
    """Open an empty queue."""
    database = SqliteDatabase.open(
        tmp_path / "dispatch.sqlite", threaded=False, factory=UnsyncedConnection
    )
    store, forge, pods = Store(database), FakeForge(), FakePods()
    recovered: list[str] = []
    recovery = Recovery(
        store=store,
        forge=forge,
        pods=pods,
        routing=lambda labels, account: world.route(labels, account),
        has_pool=lambda name: name in world.pools,
        clock=virtual_time.clock(),
        on_recovered=recovered.append,
        settings=settings or Settings(),
    )
    world = World(store, forge, pods, recovery, recovered)
    try:
        yield world
    finally:
        await store.close()


def ended(report: Report, at: datetime) -> Report:
    """Return the report of the end of a job."""
    return replace(report, phase=Phase.COMPLETED, completed_at=at, conclusion="success")
