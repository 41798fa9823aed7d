"""GitHub as the forge: runners of organisations or repositories, jobs, and the deliveries of the App's webhook.

A runner is registered in the repository's organisation or, if the owner is a user, in the repository. The type of the account
decides, not a 404: that may also mean a runner group that does not exist, and organisations and repositories number their runners
separately, so that a removal by id must not try both.
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
from bramley.github.installation import DEFAULT_RUNNER_GROUP, Installation, RunnerSpec
from bramley.github.owners import Organisation, Repository, RunnerOwner
from bramley.github.responses import (
    COMPLETED,
    IN_PROGRESS,
    ORGANISATION,
    QUEUED,
    HookDelivery,
    InstallationSummary,
    WorkflowJob,
)

T = TypeVar("T")

WORK_FOLDER = "/Users/runner/work"
_PHASES = {QUEUED: Phase.QUEUED, IN_PROGRESS: Phase.IN_PROGRESS, COMPLETED: Phase.COMPLETED}
# For each of the two states; one call lists the jobs of a run.
_MAX_RUNS = 100
# The share of the requests of an installation that only runners use.
_RESERVE = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """The deadline of each operation, which may consist of several calls, and the group that runners of organisations join.

    At most `max_deliveries` are listed: a busy App has more in a day than its requests of an hour could list, and without requests
    left it creates no tokens.
    """

    deadline: timedelta = timedelta(seconds=8)
    runner_group_id: int = DEFAULT_RUNNER_GROUP
    max_deliveries: int = 5000


@dataclass(frozen=True, slots=True)
class _Access:
    """What acts in a repository: an installation, the repository by its current owner, and what owns its runners."""

    installation: Installation
    repository: Repository
    runners: RunnerOwner


@dataclass(slots=True)
class GitHubForge:
    """Implements `Forge` with one GitHub App; the installation of each owner is looked up once, and again after a refusal."""

    app: GitHubApp
    webhook_secrets: Callable[[], Sequence[Secret]]
    settings: Settings = field(default_factory=Settings)
    _installations: dict[str, InstallationSummary] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def create_runner(self, repository: str, name: str, labels: Sequence[str]) -> NewRunner:
        """Register a runner for one job; AlreadyExists if the name is taken."""

        async def create(access: _Access) -> NewRunner:
            is_organisation = isinstance(access.runners, Organisation)
            # Repositories have no groups of their own.
            group = self.settings.runner_group_id if is_organisation else DEFAULT_RUNNER_GROUP
            spec = RunnerSpec(name, labels, WORK_FOLDER, group)
            runner = await access.installation.create_jit_runner(access.runners, spec)
            return NewRunner(runner.runner_id, runner.jit_config)

        return await self._call(repository, create)

    async def runner_state(self, repository: str, runner_id: int, name: str) -> RunnerState:
        """Return the state of a runner."""

        async def read(access: _Access) -> RunnerState:
            runner = await access.installation.runner(access.runners, runner_id)
            if runner.name != name:
                return RunnerState.GONE
            if runner.busy:
                return RunnerState.BUSY
            return RunnerState.IDLE if runner.is_online else RunnerState.OFFLINE

        try:
            return await self._call(repository, read)
        except errors.NotFound:
            return RunnerState.GONE

    async def find_runner(self, repository: str, name: str) -> int | None:
        """Return the id of the runner with this name, or None if none is registered."""

        async def find(access: _Access) -> int | None:
            found = await access.installation.runners(access.runners, name=name)
            return found[0].id if found else None

        return await self._call(repository, find)

    async def remove_runner(self, repository: str, runner_id: int) -> bool:
        """Remove a runner; True if it is not registered afterwards, False if it runs a job."""

        async def remove(access: _Access) -> None:
            await access.installation.remove_runner(access.runners, runner_id)

        try:
            await self._call(repository, remove)
        except errors.NotFound:
            return True
        except errors.BadRequest:
            return False
        return True

    async def job(self, repository: str, job_id: int) -> Report | None:
        """Return what GitHub knows of a job, or None if it has no such job."""

        async def read(access: _Access) -> Report:
            job = await access.installation.workflow_job(access.repository, job_id)
            return report_of(repository, job)

        try:
            return await self._call(repository, read)
        except errors.NotFound:
            return None

    async def unfinished_jobs(self, repository: str) -> Sequence[Report]:
        """Return the queued and running jobs of a repository."""

        async def read(access: _Access) -> list[Report]:
            found: dict[int, Report] = {}
            for status in (QUEUED, IN_PROGRESS):
                runs = await access.installation.workflow_runs(access.repository, status=status)
                for run in runs[:_MAX_RUNS]:
                    for job in await access.installation.jobs_of_run(access.repository, run.id):
                        if job.status in (QUEUED, IN_PROGRESS):
                            found[job.id] = report_of(repository, job)
            return list(found.values())

        return await self._call(repository, read, deadline=timedelta(minutes=1))

    async def failed_deliveries(self, since: datetime) -> Sequence[FailedDelivery]:
        """Return the webhooks sent since a time that no attempt delivered, among the newest ones if there are too many."""
        listed = 0
        newest: dict[str, HookDelivery] = {}
        delivered: set[str] = set()
        async with _within(timedelta(minutes=1), "list of deliveries"):
            async for attempt in self.app.hook_deliveries(since=since):
                newest.setdefault(attempt.guid, attempt)
                if attempt.is_delivered:
                    delivered.add(attempt.guid)
                listed += 1
                if listed == self.settings.max_deliveries:
                    break
        return [
            FailedDelivery(attempt.id, guid, attempt.delivered_at)
            for guid, attempt in newest.items()
            if guid not in delivered
        ]

    async def redeliver(self, delivery_id: int) -> None:
        """Request another attempt of a webhook."""
        async with _within(self.settings.deadline, "redelivery"):
            await self.app.redeliver(delivery_id)

    def is_short_of_requests(self, repository: str) -> bool:
        """Return whether less than a fifth of the installation's requests is left until their reset."""
        found = self._installations.get(repository.partition("/")[0].lower())
        return found is not None and self.app.installation(found.id).is_low(_RESERVE)

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether GitHub signed this webhook with one of the secrets."""
        header = headers.get(webhook_signatures.HEADER.lower())
        return webhook_signatures.is_valid(body, header, self.webhook_secrets())

    async def _call(
        self,
        repository: str,
        call: Callable[[_Access], Awaitable[T]],
        *,
        deadline: timedelta | None = None,
    ) -> T:
        """Return the result of a call; its NotFound is evidence, because the installation is known to be current."""
        owner, _, name = repository.partition("/")
        owned = Repository(owner, name)
        async with _within(deadline or self.settings.deadline, f"GitHub, repository {repository}"):
            known = await self._known(owned)
            try:
                return await call(self._access(known, owned))
            except (errors.NotFound, errors.Forbidden, errors.Unauthorized):
                # The App may have been installed anew under another id, the account renamed, or the repository denied.
                current = await self._looked_up(owned)
                if current == known:
                    raise
            return await call(self._access(current, owned))

    async def _known(self, repository: Repository) -> InstallationSummary:
        key = repository.owner.lower()
        # One lookup for all callers: after a start, many Pods ask for jobs of the same owner.
        async with self._locks.setdefault(key, asyncio.Lock()):
            return self._installations.get(key) or await self._looked_up(repository)

    async def _looked_up(self, repository: Repository) -> InstallationSummary:
        """Return the installation that has a repository; Forbidden if there is none."""
        key = repository.owner.lower()
        try:
            found = await self.app.installation_of(repository)
        except errors.NotFound as error:
            self._installations.pop(key, None)
            raise errors.Forbidden(
                f"the GitHub App is not installed for {repository.owner}/{repository.name}: {error}"
            ) from None
        # Another login is that of a transferred repository, which says nothing about the others of this owner.
        if found.account.login.lower() == key:
            self._installations[key] = found
        else:
            self._installations.pop(key, None)
        return found

    def _access(self, found: InstallationSummary, owned: Repository) -> _Access:
        login = found.account.login
        repository = Repository(login, owned.name)
        is_organisation = found.account.type == ORGANISATION
        runners = Organisation(login) if is_organisation else repository
        return _Access(self.app.installation(found.id), repository, runners)


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


@asynccontextmanager
async def _within(deadline: timedelta, about: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(deadline.total_seconds()):
            yield
    except TimeoutError:
        raise errors.GitHubUnavailable(f"{about}: no result within {deadline}") from None
