"""The jobs at the simulated GitHub of `bramley up`: a small stream of sample jobs, and what an earlier start left unfinished."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.api.names import runners
from bramley.dispatch import jobs
from bramley.dispatch.store.records import Job
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.github.records import COMPLETED, Repository, Run
from bramley.sim.github.records import Job as SimulatedJob

# The states of jobs that the simulated GitHub had when it stopped.
UNFINISHED = (jobs.State.QUEUED, jobs.State.CLAIMED, jobs.State.RUNNING)

_MAX_UNFINISHED = 2
_NAMES = ("build", "unit tests", "ui tests", "archive")
_SECONDS = (2.0, 6.0)


@dataclass(slots=True)
class SampleJobs:
    """Queues jobs at one simulated GitHub."""

    github: SimulatedGitHub
    rng: random.Random
    _unfinished: list[SimulatedJob] = field(default_factory=list)

    def queue_next(self) -> None:
        """Queue the next job of the stream, unless earlier ones still wait; jobs of the user do not count."""
        self._unfinished = [job for job in self._unfinished if job.status != COMPLETED]
        if len(self._unfinished) >= _MAX_UNFINISHED:
            return
        account = self.github.accounts[self.rng.choice(sorted(self.github.accounts))]
        job = self.github.actions.queue_job(
            next(iter(account.repositories.values())),
            labels=[runners.SAMPLE_DISPATCH_LABEL],
            duration=self._duration(),
            name=self.rng.choice(_NAMES),
        )
        self._unfinished.append(job)

    def restore(self, unfinished: Iterable[Job]) -> None:
        """Queue jobs of an earlier start again, since this GitHub has no storage; those that ran are cancelled, like their VMs."""
        actions = self.github.actions
        for job in unfinished:
            repository = self._repository(job.facts.repository)
            if repository is None or job.id in actions.jobs:
                continue
            queued_at = job.facts.queued_at or job.updated_at
            run = actions.runs.setdefault(
                job.facts.run_id, Run(job.facts.run_id, repository, queued_at)
            )
            restored = actions.queue_job(
                repository,
                labels=job.facts.labels,
                duration=self._duration(),
                name=job.facts.name,
                run=run,
                job_id=job.id,
            )
            if job.state == jobs.State.RUNNING:
                actions.cancel_job(restored)

    def _repository(self, full_name: str) -> Repository | None:
        owner, _, name = full_name.lower().partition("/")
        account = self.github.accounts.get(owner)
        return account.repositories.get(name) if account else None

    def _duration(self) -> timedelta:
        return timedelta(seconds=self.rng.uniform(*_SECONDS))
