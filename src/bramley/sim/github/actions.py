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
_NAME_LENGTH = 64

OnChange = Callable[[Job, str], None]


class JitFile(msgspec.Struct):
    """The content of an encoded JIT configuration."""

    runner_id: int
    secret: str


class Actions:
    """Gives queued jobs to idle runners; `on_change` is called with a job and the action of its webhook."""

    def __init__(
        self, clock: Clock, rng: random.Random, on_change: OnChange, *, picks_randomly: bool = False
    ) -> None:
        # Whether a runner gets any of the matching jobs instead of the oldest.
        self.picks_randomly = picks_randomly
        self.runs: dict[int, Run] = {}
        self.jobs: dict[int, Job] = {}
        self.runners: dict[int, Runner] = {}
        self._clock = clock
        self._rng = rng
        self._on_change = on_change
        self._last_id = 1000
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
    ) -> Job:
        """Queue a job, in a new run unless one is given."""
        now = self._clock.now()
        if run is None:
            run = Run(self._next_id(), repository, now)
            self.runs[run.id] = run
        job = Job(
            self._next_id(),
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

    def register(self, owner: str, name: str, labels: Iterable[str], group_id: int) -> Runner:
        """Register a runner; a Refusal if the name is taken or not valid."""
        requested = tuple(labels)
        if not name or len(name) > _NAME_LENGTH or not requested:
            raise Refusal(422, "Validation Failed")
        if (owner, name) in self._names:
            raise Refusal(409, "Already exists - A runner with the name already exists")
        secret = f"{self._rng.getrandbits(128):032x}"
        runner = Runner(self._next_id(), name, owner, requested, group_id, secret)
        self.runners[runner.id] = runner
        self._names.add((owner, name))
        return runner

    def jit_config(self, runner: Runner) -> str:
        """Return the configuration with which `run_runner` starts this runner."""
        return base64.b64encode(msgspec.json.encode(JitFile(runner.id, runner.secret))).decode()

    def remove(self, runner: Runner) -> None:
        """Remove a runner; a Refusal while it runs a job."""
        if runner.job is not None:
            raise Refusal(422, f'Bad request - Runner "{runner.name}" is still running a job')
        self._forget(runner)

    async def run_runner(self, encoded: str) -> Job | None:
        """Connect a runner with its JIT configuration and run one job to its end, as the guest of a VM does."""
        return await self.run_job(self.connect(encoded))

    def connect(self, encoded: str) -> Runner:
        """Return the runner of a JIT configuration, online from now on; a configuration works once."""
        try:
            file = msgspec.json.decode(base64.b64decode(encoded, validate=True), type=JitFile)
        except (binascii.Error, ValueError):
            raise Refusal(400, "The JIT configuration is not valid") from None
        runner = self.runners.get(file.runner_id)
        if runner is None or runner.secret != file.secret:
            raise Refusal(401, "The runner registration has been deleted")
        if runner.was_online:
            raise Refusal(409, "A session for this runner already exists")
        runner.is_online = runner.was_online = True
        self._idle[runner.id] = runner
        # Whichever job this runner was registered for.
        queued = [job for job in self._queued.values() if runner.matches(job)]
        if queued:
            self._start(self._rng.choice(queued) if self.picks_randomly else queued[0], runner)
        return runner

    async def run_job(self, runner: Runner) -> Job | None:
        """Wait for a job and run it; None if the runner was removed before it got one.

        A cancelled call is a runner that was lost: an idle one is offline, and the job of a busy one fails after `LOST_AFTER`.
        """
        try:
            await runner.assigned.wait()
            if (job := runner.job) is None:
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.ended.wait(), job.duration.total_seconds())
        except asyncio.CancelledError:
            self._lose(runner)
            raise
        if job.status != COMPLETED:
            self._complete(job, job.outcome)
        return job

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
        if job.runner_id is not None and (runner := self.runners.get(job.runner_id)):
            self._forget(runner)
        self._on_change(job, COMPLETED)

    def _lose(self, runner: Runner) -> None:
        runner.is_online = False
        self._idle.pop(runner.id, None)
        job = runner.job
        if job is not None and job.status == IN_PROGRESS:
            loop = asyncio.get_running_loop()
            loop.call_later(LOST_AFTER.total_seconds(), self._fail_lost, job)

    def _fail_lost(self, job: Job) -> None:
        if job.status == IN_PROGRESS:
            self._complete(job, "failure")

    def _forget(self, runner: Runner) -> None:
        self.runners.pop(runner.id, None)
        self._idle.pop(runner.id, None)
        self._names.discard((runner.owner, runner.name))
        runner.is_online = False
        runner.job = None
        runner.assigned.set()

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id
