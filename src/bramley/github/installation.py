"""The calls of one installation of a GitHub App: runners, runner groups, workflow runs and jobs.

A token that GitHub refuses is replaced once per call; the refused request was not processed, so that is safe for any call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.github.client import Call, Credential, GitHubClient
from bramley.github.installation_tokens import InstallationTokens
from bramley.github.owners import Organisation, Repository, RunnerOwner
from bramley.github.responses import (
    AccessToken,
    JitConfig,
    JobPage,
    Runner,
    RunnerGroup,
    RunnerGroupPage,
    RunnerPage,
    RunPage,
    WorkflowJob,
    WorkflowRun,
    decoded,
)
from bramley.kube.transport import Response

T = TypeVar("T")

DEFAULT_RUNNER_GROUP = 1
_PAGE = {"per_page": "100"}


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """A runner to register for one job."""

    name: str
    labels: Sequence[str]
    work_folder: str = "_work"
    runner_group_id: int = DEFAULT_RUNNER_GROUP


@dataclass(frozen=True, slots=True)
class RegisteredRunner:
    """A runner that was registered, where, and the configuration that starts it."""

    owner: RunnerOwner
    runner_id: int
    name: str
    jit_config: Secret


class Installation:
    """Calls GitHub with the tokens of one installation.

    Errors of all calls: Unavailable, RateLimited, NotFound, or Refused.
    """

    def __init__(
        self, installation_id: int, client: GitHubClient, tokens: InstallationTokens
    ) -> None:
        self.installation_id = installation_id
        self._client = client
        self._tokens = tokens

    @property
    def scope(self) -> str:
        """Return the scope of its rate limits."""
        return f"installation {self.installation_id}"

    def is_low(self, share: float) -> bool:
        """Return whether less than this share of its requests is left until their reset."""
        return self._client.rate_limits.is_low(self.scope, share)

    async def registration_token(self, owner: RunnerOwner) -> AccessToken:
        """Return a token that registers runners for an hour."""
        path = f"{owner.path}/actions/runners/registration-token"
        return await self._read(Call("POST", path, repeatable=True), AccessToken)

    async def create_jit_runner(self, owner: RunnerOwner, runner: RunnerSpec) -> RegisteredRunner:
        """Register a runner; NotFound if there is no such organisation or runner group, AlreadyExists if the name is taken.

        After Unavailable the runner may exist: remove it, or use another name.
        """
        body = {
            "name": runner.name,
            "runner_group_id": runner.runner_group_id,
            "labels": list(runner.labels),
            "work_folder": runner.work_folder,
        }
        call = Call("POST", f"{owner.path}/actions/runners/generate-jitconfig", body=body)
        created = await self._read(call, JitConfig)
        return RegisteredRunner(
            owner, created.runner.id, created.runner.name, created.encoded_jit_config
        )

    async def runners(self, owner: RunnerOwner, *, name: str = "") -> list[Runner]:
        """Return the registered runners, or only the one with this name."""
        query = {**_PAGE, "name": name} if name else _PAGE
        call = Call("GET", f"{owner.path}/actions/runners", query, repeatable=True)
        found = [each async for page in self._pages(call, RunnerPage) for each in page.runners]
        # Servers that do not know the filter return all runners.
        return [runner for runner in found if not name or runner.name == name]

    async def runner(self, owner: RunnerOwner, runner_id: int) -> Runner:
        """Return a runner; NotFound once it is removed, as a JIT runner is after its job."""
        return await self._get(f"{owner.path}/actions/runners/{runner_id}", Runner)

    async def remove_runner(self, owner: RunnerOwner, runner_id: int) -> None:
        """Remove a runner; NotFound if it is removed already, BadRequest while it runs a job."""
        call = Call("DELETE", f"{owner.path}/actions/runners/{runner_id}", repeatable=True)
        await self._send(call)

    async def runner_groups(self, organisation: Organisation) -> list[RunnerGroup]:
        """Return the runner groups of an organisation."""
        call = Call("GET", f"{organisation.path}/actions/runner-groups", _PAGE, repeatable=True)
        pages = self._pages(call, RunnerGroupPage)
        return [each async for page in pages for each in page.runner_groups]

    async def workflow_job(self, repository: Repository, job_id: int) -> WorkflowJob:
        """Return a job."""
        return await self._get(f"{repository.path}/actions/jobs/{job_id}", WorkflowJob)

    async def workflow_run(self, repository: Repository, run_id: int) -> WorkflowRun:
        """Return a workflow run."""
        return await self._get(f"{repository.path}/actions/runs/{run_id}", WorkflowRun)

    async def jobs_of_run(self, repository: Repository, run_id: int) -> list[WorkflowJob]:
        """Return the jobs of the latest attempt of a run."""
        call = Call("GET", f"{repository.path}/actions/runs/{run_id}/jobs", _PAGE, repeatable=True)
        return [each async for page in self._pages(call, JobPage) for each in page.jobs]

    async def workflow_runs(self, repository: Repository, *, status: str) -> list[WorkflowRun]:
        """Return the runs of a repository with a status, such as `queued` or `in_progress`."""
        query = {**_PAGE, "status": status}
        call = Call("GET", f"{repository.path}/actions/runs", query, repeatable=True)
        return [each async for page in self._pages(call, RunPage) for each in page.workflow_runs]

    async def _get(self, path: str, kind: type[T]) -> T:
        return await self._read(Call("GET", path, repeatable=True), kind)

    async def _read(self, call: Call, kind: type[T]) -> T:
        response = await self._send(call)
        return decoded(response.body, kind, str(call))

    async def _send(self, call: Call) -> Response:
        credential = await self._credential()
        try:
            return await self._client.send(call, credential)
        except errors.Unauthorized:
            self._tokens.discard(self.installation_id, credential.token)
        return await self._client.send(call, await self._credential())

    async def _pages(self, call: Call, kind: type[T]) -> AsyncIterator[T]:
        async for response in self._client.pages(call, self._send):
            yield decoded(response.body, kind, str(call))

    async def _credential(self) -> Credential:
        return Credential(self.scope, await self._tokens.current(self.installation_id))
