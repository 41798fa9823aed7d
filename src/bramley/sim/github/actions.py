"""Workflow runs, jobs and runners of the simulated GitHub, and which runner gets which job."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import random
from collections.abc import Callable, Iterable
from datetime import timedelta

import msgspec

from bramley.base.clock import Clock
from bramley.sim.github.records import (
    COMPLETED,
    IN_PROGRESS,
    QUEUED,
    Job,
    Refusal,
    Repository,
    Run,
    Runner,
)

# GitHub fails a job this long after its runner stopped answering.
LOST_AFTER = timedelta(minutes=10)
# A guest that was answered when its job started is lost if its next request does not come within this time.
RECONNECT_WITHIN = timedelta(seconds=30)
_NAME_LENGTH = 64

OnChange = Callable[[Job, str], None]


class JitFile(msgspec.Struct, omit_defaults=True):
    """The content of an encoded JIT configuration; a simulated guest gets its job from `url` if there is one."""

    runner_id: int
    secret: str
    url: str = ""


class Registration(msgspec.Struct):
    """What stays of a runner that keeps its registration."""

    id: int
    name: str
    owner: str
    labels: tuple[str, ...]
    group_id: int
    secret: str


class Actions:
    """Gives queued jobs to idle runners; `on_change` is called with a job and the action of its webhook."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        on_change: OnChange,
        *,
        picks_randomly: bool = False,
        base_url: str = "",
        first_id: int = 1000,
        on_registration: Callable[[], None] = lambda: None,
    ) -> None:
        # Whether a runner gets any of the matching jobs instead of the oldest.
        self.picks_randomly = picks_randomly
        # Where guests reach the simulation; a part of each JIT configuration.
        self.base_url = base_url
        self.runs: dict[int, Run] = {}
        self.jobs: dict[int, Job] = {}
        self.runners: dict[int, Runner] = {}
        self._clock = clock
        self._rng = rng
        self._on_change = on_change
        self._on_registration = on_registration
        self._last_id = first_id
        # Only these are searched, so that thousands of jobs and runners stay cheap.
        self._queued: dict[int, Job] = {}
        self._idle: dict[int, Runner] = {}
        self._names: set[tuple[str, str]] = set()

    def queue_job(
        self,
        repository: Repository,
        *,
        labels: Iterable[str],
        duration: timedelta = timedelta(minutes=1),
        name: str = "build",
        outcome: str = "success",
        run: Run | None = None,
        job_id: int | None = None,
    ) -> Job:
        """Queue a job, in a new run and with a new id unless they are given."""
        now = self._clock.now()
        if run is None:
            run = Run(self._next_id(), repository, now)
            self.runs[run.id] = run
        job = Job(
            job_id or self._next_id(),
            run,
            name=name,
            labels=tuple(labels),
            duration=duration,
            outcome=outcome,
            created_at=now,
        )
        run.jobs.append(job)
        self.jobs[job.id] = job
        self._queued[job.id] = job
        self._on_change(job, QUEUED)
        idle = (each for each in self._idle.values() if each.matches(job))
        if runner := next(idle, None):
            self._start(job, runner)
        return job

    def cancel_job(self, job: Job) -> None:
        """Cancel a job, queued or running."""
        if job.status != COMPLETED:
            self._complete(job, "cancelled")

    def end_job(self, job: Job) -> None:
        """End a running job now, with its outcome."""
        if job.status != COMPLETED:
            self._complete(job, job.outcome)

    def register(
        self,
        owner: str,
        name: str,
        labels: Iterable[str],
        group_id: int,
        *,
        is_ephemeral: bool = True,
        replaces: bool = False,
    ) -> Runner:
        """Register a runner; a Refusal if the name is not valid, or taken and not to be replaced."""
        requested = tuple(labels)
        if not name or len(name) > _NAME_LENGTH or not requested:
            raise Refusal(422, "Validation Failed")
        if replaces:
            self._remove_named(owner, name)
        if (owner, name) in self._names:
            raise Refusal(409, "Already exists - A runner with the name already exists")
        secret = f"{self._rng.getrandbits(128):032x}"
        runner = Runner(self._next_id(), name, owner, requested, group_id, secret, is_ephemeral)
        self._add(runner)
        self._on_registration()
        return runner

    def registrations(self) -> list[Registration]:
        """Return the runners that stay registered."""
        return [
            Registration(each.id, each.name, each.owner, each.labels, each.group_id, each.secret)
            for each in self.runners.values()
            if not each.is_ephemeral
        ]

    def restore(self, registrations: Iterable[Registration]) -> None:
        """Register runners of an earlier simulation; they are offline until they connect."""
        for each in registrations:
            self._add(Runner(**msgspec.structs.asdict(each), is_ephemeral=False))

    def jit_config(self, runner: Runner) -> str:
        """Return the configuration with which `run_runner` or `serve` starts this runner."""
        file = JitFile(runner.id, runner.secret, self.base_url)
        return base64.b64encode(msgspec.json.encode(file)).decode()

    def remove(self, runner: Runner) -> None:
        """Remove a runner; a Refusal while it runs a job."""
        if runner.job is not None:
            raise Refusal(422, f'Bad request - Runner "{runner.name}" is still running a job')
        self._forget(runner)

    async def run_runner(self, encoded: str) -> Job | None:
        """Connect a runner with its JIT configuration and run one job to its end, as the guest of a VM does."""
        return await self.run_job(self.connect(encoded))

    def connect(self, encoded: str) -> Runner:
        """Return the runner of a JIT configuration, online from now on; that of an ephemeral runner works once."""
        runner = self._registered(encoded)
        if runner.is_online or (runner.was_online and runner.is_ephemeral):
            raise Refusal(409, "A session for this runner already exists")
        runner.is_online = runner.was_online = True
        # One that comes back in time continues its job.
        if runner.job is None:
            self._take_job(runner)
        return runner

    async def serve(self, runner: Runner) -> None:
        """Run jobs until the runner is removed; a cancelled call is a runner that was lost."""
        while (job := await self.wait_for_job(runner)) is not None:
            await self.finish_job(job, runner)

    async def run_job(self, runner: Runner) -> Job | None:
        """Wait for a job and run it; None if the runner was removed before it got one.

        A cancelled call is a runner that was lost: an idle one is offline, and the job of a busy one fails after `LOST_AFTER`.
        """
        job = await self.wait_for_job(runner)
        if job is not None:
            await self.finish_job(job, runner)
        return job

    async def wait_for_job(self, runner: Runner) -> Job | None:
        """Wait until a runner got its job; None if it was removed before. A cancelled call is a runner that was lost."""
        try:
            await runner.assigned.wait()
        except asyncio.CancelledError:
            self.lose(runner)
            raise
        return runner.job

    async def finish_job(self, job: Job, runner: Runner) -> None:
        """Run the job of a runner to its end; a cancelled call is a runner that was lost."""
        started_at = job.started_at or self._clock.now()
        remaining = job.duration - (self._clock.now() - started_at)
        runner.is_connected = True
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.ended.wait(), max(remaining.total_seconds(), 0))
        except asyncio.CancelledError:
            self.lose(runner)
            raise
        self.end_job(job)

    def runner_of(self, job: Job, encoded: str) -> Runner:
        """Return the runner of a JIT configuration; a Refusal unless it runs this job."""
        runner = self._registered(encoded)
        if runner.job is not job or not runner.is_online:
            raise Refusal(409, "The runner does not run this job")
        return runner

    def expect_reconnection(self, runner: Runner) -> None:
        """Lose a runner unless its guest sends the next request in time."""
        loop = asyncio.get_running_loop()
        loop.call_later(RECONNECT_WITHIN.total_seconds(), self._lose_unless_connected, runner)

    def _registered(self, encoded: str) -> Runner:
        try:
            file = msgspec.json.decode(base64.b64decode(encoded, validate=True), type=JitFile)
        except (binascii.Error, ValueError):
            raise Refusal(400, "The JIT configuration is not valid") from None
        runner = self.runners.get(file.runner_id)
        if runner is None or runner.secret != file.secret:
            raise Refusal(401, "The runner registration has been deleted")
        return runner

    def _take_job(self, runner: Runner) -> None:
        """Make a runner idle, and start a queued job on it if there is one."""
        self._idle[runner.id] = runner
        # Whichever job this runner was registered for.
        queued = [job for job in self._queued.values() if runner.matches(job)]
        if queued:
            self._start(self._rng.choice(queued) if self.picks_randomly else queued[0], runner)

    def _start(self, job: Job, runner: Runner) -> None:
        del self._queued[job.id], self._idle[runner.id]
        runner.job = job
        job.status, job.started_at = IN_PROGRESS, self._clock.now()
        job.runner_id, job.runner_name = runner.id, runner.name
        runner.assigned.set()
        self._on_change(job, IN_PROGRESS)

    def _complete(self, job: Job, conclusion: str) -> None:
        self._queued.pop(job.id, None)
        job.status, job.conclusion = COMPLETED, conclusion
        job.completed_at = self._clock.now()
        job.ended.set()
        runner = self.runners.get(job.runner_id or 0)
        if runner is not None and runner.is_ephemeral:
            self._forget(runner)
        self._on_change(job, COMPLETED)
        if runner is not None and not runner.is_ephemeral:
            self._end_job(runner)

    def _end_job(self, runner: Runner) -> None:
        """Make a runner that keeps its registration ready for the next job."""
        runner.job = None
        runner.assigned.clear()
        if runner.is_online:
            self._take_job(runner)

    def lose(self, runner: Runner) -> None:
        """Disconnect a runner; its job fails after `LOST_AFTER`."""
        runner.is_online = False
        self._idle.pop(runner.id, None)
        job = runner.job
        if job is not None and job.status == IN_PROGRESS:
            loop = asyncio.get_running_loop()
            loop.call_later(LOST_AFTER.total_seconds(), self._fail_lost, job)

    def _lose_unless_connected(self, runner: Runner) -> None:
        if not runner.is_connected:
            self.lose(runner)

    def _fail_lost(self, job: Job) -> None:
        if job.status == IN_PROGRESS:
            self._complete(job, "failure")

    def _remove_named(self, owner: str, name: str) -> None:
        """Remove the runner that another registration replaces; its job fails later if its process is gone."""
        for runner in [
            each for each in self.runners.values() if (each.owner, each.name) == (owner, name)
        ]:
            self.lose(runner)
            self._forget(runner)

    def _add(self, runner: Runner) -> None:
        self.runners[runner.id] = runner
        self._names.add((runner.owner, runner.name))

    def _forget(self, runner: Runner) -> None:
        self.runners.pop(runner.id, None)
        self._idle.pop(runner.id, None)
        self._names.discard((runner.owner, runner.name))
        runner.is_online = False
        runner.job = None
        runner.assigned.set()
        if not runner.is_ephemeral:
            self._on_registration()

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id
