"""GitHub as the forge: runners of organisations or repositories, jobs, and the deliveries of the App's webhook.

A runner is registered in the repository's organisation or, if the owner is a user, in the repository. Where it was registered is
not stored: a lookup tries both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.dispatch.forge import FailedDelivery, NewRunner, RunnerState
from bramley.dispatch.jobs import Phase, Report
from bramley.dispatch.webhook_payload import shown
from bramley.github import webhook_signatures
from bramley.github.app import GitHubApp
from bramley.github.installation import Installation, RunnerSpec
from bramley.github.owners import Organisation, Repository, RunnerOwner
from bramley.github.responses import COMPLETED, IN_PROGRESS, QUEUED, HookDelivery, WorkflowJob

T = TypeVar("T")

WORK_FOLDER = "/Users/runner/work"
_PHASES = {QUEUED: Phase.QUEUED, IN_PROGRESS: Phase.IN_PROGRESS, COMPLETED: Phase.COMPLETED}
_MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class Settings:
    """The deadline of each operation, which may consist of several calls, and how long an unknown account is not looked up again."""

    deadline: timedelta = timedelta(seconds=8)
    runner_group_id: int = 1


@dataclass(slots=True)
class GitHubForge:
    """Implements `Forge` with one GitHub App; the installation of each owner is looked up once."""

    app: GitHubApp
    webhook_secrets: Callable[[], Sequence[Secret]]
    settings: Settings = field(default_factory=Settings)
    _installations: dict[str, int] = field(default_factory=dict)

    async def create_runner(self, repository: str, name: str, labels: Sequence[str]) -> NewRunner:
        """Register a runner for one job; AlreadyExists if the name is taken."""
        spec = RunnerSpec(name, labels, WORK_FOLDER, self.settings.runner_group_id)

        async def create(installation: Installation, owned: Repository) -> NewRunner:
            runner = await installation.create_jit_runner(owned, spec)
            return NewRunner(runner.runner_id, runner.jit_config)

        return await self._call(repository, create)

    async def runner_state(self, repository: str, runner_id: int, name: str) -> RunnerState:
        """Return the state of a runner."""

        async def read(installation: Installation, owned: Repository) -> RunnerState:
            for owner in _owners(owned):
                try:
                    runner = await installation.runner(owner, runner_id)
                except errors.NotFound:
                    continue
                # Ids of organisations and repositories are separate: the name decides whether it is this runner.
                if runner.name == name:
                    if runner.busy:
                        return RunnerState.BUSY
                    return RunnerState.IDLE if runner.is_online else RunnerState.OFFLINE
            return RunnerState.GONE

        return await self._call(repository, read)

    async def find_runner(self, repository: str, name: str) -> int | None:
        """Return the id of the runner with this name, or None if none is registered."""

        async def find(installation: Installation, owned: Repository) -> int | None:
            for owner in _owners(owned):
                try:
                    found = await installation.runners(owner, name=name)
                except errors.NotFound:
                    continue
                if found:
                    return found[0].id
            return None

        return await self._call(repository, find)

    async def remove_runner(self, repository: str, runner_id: int) -> bool:
        """Remove a runner; True if it is not registered afterwards, False if it runs a job."""

        async def remove(installation: Installation, owned: Repository) -> bool:
            try:
                for owner in _owners(owned):
                    await installation.remove_runner(owner, runner_id)
            except errors.BadRequest:
                return False
            return True

        return await self._call(repository, remove)

    async def job(self, repository: str, job_id: int) -> Report | None:
        """Return what GitHub knows of a job, or None if it has no such job."""

        async def read(installation: Installation, owned: Repository) -> Report | None:
            try:
                return report_of(repository, await installation.workflow_job(owned, job_id))
            except errors.NotFound:
                return None

        return await self._call(repository, read)

    async def unfinished_jobs(self, repository: str) -> Sequence[Report]:
        """Return the queued and running jobs of a repository."""

        async def read(installation: Installation, owned: Repository) -> list[Report]:
            found: dict[int, Report] = {}
            for status in (QUEUED, IN_PROGRESS):
                runs = await installation.workflow_runs(owned, status=status)
                for run in runs[:_MAX_RUNS]:
                    for job in await installation.jobs_of_run(owned, run.id):
                        if job.status in (QUEUED, IN_PROGRESS):
                            found[job.id] = report_of(repository, job)
            return list(found.values())

        return await self._call(repository, read, deadline=timedelta(minutes=1))

    async def failed_deliveries(self, since: datetime) -> Sequence[FailedDelivery]:
        """Return the webhooks sent since a time that no attempt delivered."""
        newest: dict[str, HookDelivery] = {}
        delivered: set[str] = set()
        async with _within(timedelta(minutes=1), "list of deliveries"):
            async for attempt in self.app.hook_deliveries(since=since):
                newest.setdefault(attempt.guid, attempt)
                if attempt.is_delivered:
                    delivered.add(attempt.guid)
        return [
            FailedDelivery(attempt.id, guid, attempt.delivered_at)
            for guid, attempt in newest.items()
            if guid not in delivered
        ]

    async def redeliver(self, delivery_id: int) -> None:
        """Request another attempt of a webhook."""
        async with _within(self.settings.deadline, "redelivery"):
            await self.app.redeliver(delivery_id)

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether GitHub signed this webhook with one of the secrets."""
        header = headers.get(webhook_signatures.HEADER.lower())
        return webhook_signatures.is_valid(body, header, self.webhook_secrets())

    async def _call(
        self,
        repository: str,
        call: Callable[[Installation, Repository], Awaitable[T]],
        *,
        deadline: timedelta | None = None,
    ) -> T:
        owner, _, name = repository.partition("/")
        owned = Repository(owner, name)
        async with _within(deadline or self.settings.deadline, f"GitHub, repository {repository}"):
            return await call(await self._installation(owned), owned)

    async def _installation(self, repository: Repository) -> Installation:
        key = repository.owner.lower()
        if key not in self._installations:
            # NotFound here means that the App is not installed, which concerns every job of the owner.
            try:
                found = await self.app.installation_of(repository)
            except errors.NotFound:
                raise errors.Forbidden(
                    f"the GitHub App is not installed for {repository.owner}/{repository.name}"
                ) from None
            self._installations[key] = found.id
        return self.app.installation(self._installations[key])

    def forget_installation(self, repository: str) -> None:
        """Look the installation up again: the App may have been installed anew under another id."""
        self._installations.pop(repository.partition("/")[0].lower(), None)


def report_of(repository: str, job: WorkflowJob) -> Report:
    """Return a job of GitHub's API as a report, with texts of bounded length."""
    phase = _PHASES.get(job.status, Phase.WAITING)
    started, ended = phase >= Phase.IN_PROGRESS, phase == Phase.COMPLETED
    return Report(
        job_id=job.id,
        phase=phase,
        account=repository.partition("/")[0].lower(),
        repository=repository,
        labels=tuple(shown(label) for label in job.labels),
        run_id=job.run_id,
        run_attempt=job.run_attempt,
        workflow=shown(job.workflow_name),
        name=shown(job.name),
        branch=shown(job.head_branch),
        sha=shown(job.head_sha),
        runner_name=shown(job.runner_name) if started else "",
        conclusion=shown(job.conclusion) if ended else "",
        queued_at=job.created_at,
        started_at=job.started_at if started else None,
        completed_at=job.completed_at if ended else None,
    )


def _owners(repository: Repository) -> tuple[RunnerOwner, RunnerOwner]:
    return Organisation(repository.owner), repository


@asynccontextmanager
async def _within(deadline: timedelta, about: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(deadline.total_seconds()):
            yield
    except TimeoutError:
        raise errors.GitHubUnavailable(f"{about}: no result within {deadline}") from None
