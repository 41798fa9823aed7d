"""The bodies of GitHub's responses, with only the fields that are used, and the decoder for them.

Tokens become Secrets while they are decoded, so that no representation of a response shows one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from bramley.base import errors
from bramley.base.secret import Secret

T = TypeVar("T")

QUEUED = "queued"
IN_PROGRESS = "in_progress"
COMPLETED = "completed"
# The type of an account; that of a user is "User".
ORGANISATION = "Organization"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An organisation or a user."""

    login: str
    type: str = ORGANISATION


class InstallationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An installation of the App in an account."""

    id: int
    account: Account
    suspended_at: datetime | None = None


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token of an installation, or one that registers a runner."""

    token: Secret
    expires_at: datetime


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A label of a runner."""

    name: str


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """A registered runner; `status` is `online` or `offline`."""

    id: int
    name: str
    status: str
    busy: bool
    labels: list[Label] = []
    runner_group_id: int | None = None

    @property
    def is_online(self) -> bool:
        """Return whether the runner is connected to GitHub."""
        return self.status == "online"


class JitConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A registered runner and the configuration that starts it once."""

    runner: Runner
    encoded_jit_config: Secret


class RunnerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A runner group of an organisation; `visibility` is `all`, `selected` or `private`."""

    id: int
    name: str
    visibility: str = "all"
    default: bool = False
    allows_public_repositories: bool = False


class WorkflowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a workflow run."""

    id: int
    run_id: int
    name: str
    status: str
    run_attempt: int = 1
    conclusion: str | None = None
    labels: list[str] = []
    runner_id: int | None = None
    runner_name: str | None = None
    workflow_name: str | None = None
    head_branch: str | None = None
    head_sha: str | None = None
    html_url: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class WorkflowRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a workflow."""

    id: int
    status: str | None
    name: str | None = None
    conclusion: str | None = None
    event: str = ""
    run_attempt: int = 1
    head_branch: str | None = None
    head_sha: str | None = None
    created_at: datetime | None = None


class HookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to deliver a webhook; redeliveries have the same `guid` and another `id`."""

    id: int
    guid: str
    delivered_at: datetime
    event: str
    status_code: int = 0
    status: str = ""
    redelivery: bool = False
    action: str | None = None
    installation_id: int | None = None
    repository_id: int | None = None

    @property
    def is_delivered(self) -> bool:
        """Return whether the receiver answered with success."""
        return 200 <= self.status_code < 300


class RunnerPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of runners."""

    runners: list[Runner]


class RunnerGroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of runner groups."""

    runner_groups: list[RunnerGroup]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    jobs: list[WorkflowJob]


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of workflow runs."""

    workflow_runs: list[WorkflowRun]


def decoded(body: bytes, kind: type[T], about: str) -> T:
    """Return a body as this type; GitHubUnavailable if it is something else, as from a proxy."""
    try:
        return msgspec.json.decode(body, type=kind, dec_hook=_secret)
    # A body that is not UTF-8, or nested too deeply, is no DecodeError.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.GitHubUnavailable(f"{about}: invalid response: {error}") from None


def _secret(kind: type[Any], value: Any) -> Any:
    if kind is Secret and isinstance(value, str) and value:
        return Secret(value)
    raise ValueError("a token is not a string, or empty")
