"""What the simulated GitHub stores: accounts, repositories, runners, workflow runs and jobs, with their JSON."""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

QUEUED, IN_PROGRESS, COMPLETED = "queued", "in_progress", "completed"
ORGANISATION, USER = "Organization", "User"


class Refusal(Exception):
    """A request is answered with this status and message."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository."""

    id: int
    owner: str
    name: str

    @property
    def full_name(self) -> str:
        """Return `owner/name`."""
        return f"{self.owner}/{self.name}"

    @property
    def runner_owners(self) -> tuple[str, str]:
        """Return the owners whose runners may run its jobs."""
        return f"/orgs/{self.owner}", f"/repos/{self.full_name}"


@dataclass(slots=True, eq=False)
class Account:
    """An organisation or a user with an installation of the App, and what that installation may do."""

    login: str
    type: str
    installation_id: int
    permissions: set[str]
    is_suspended: bool = False
    repositories: dict[str, Repository] = field(default_factory=dict)
    groups: list[str] = field(default_factory=lambda: ["Default"])

    def json(self) -> dict[str, Any]:
        """Return the account as GitHub shows it."""
        return {"login": self.login, "type": self.type}


@dataclass(slots=True, eq=False)
class Run:
    """A run of a workflow; its status follows from its jobs."""

    id: int
    repository: Repository
    created_at: datetime
    name: str = "CI"
    branch: str = "main"
    jobs: list[Job] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Return the status of the run."""
        statuses = {job.status for job in self.jobs}
        if statuses == {COMPLETED}:
            return COMPLETED
        return QUEUED if statuses == {QUEUED} else IN_PROGRESS

    @property
    def conclusion(self) -> str | None:
        """Return the conclusion of a completed run: the first one of its jobs that is no success."""
        if self.status != COMPLETED:
            return None
        return next((job.conclusion for job in self.jobs if job.conclusion != "success"), "success")

    def json(self) -> dict[str, Any]:
        """Return the run as GitHub shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "conclusion": self.conclusion,
            "event": "push",
            "run_attempt": 1,
            "head_branch": self.branch,
            "head_sha": f"{self.id:040x}",
            "created_at": self.created_at,
        }


@dataclass(slots=True, eq=False)
class Runner:
    """A registered runner of an organisation or a repository; an ephemeral one is removed after its job."""

    id: int
    name: str
    owner: str
    labels: tuple[str, ...]
    group_id: int
    secret: str = field(repr=False)
    is_ephemeral: bool = True
    is_online: bool = False
    was_online: bool = False
    # Whether its guest holds a connection while it runs the job.
    is_connected: bool = False
    job: Job | None = None
    # Set when it got a job or was removed.
    assigned: asyncio.Event = field(default_factory=asyncio.Event)
    keys: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = _lowered(self.labels)

    def matches(self, job: Job) -> bool:
        """Return whether this runner may run a job: same owner, and all its labels."""
        return self.owner in job.run.repository.runner_owners and job.keys <= self.keys

    def json(self) -> dict[str, Any]:
        """Return the runner as GitHub shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "os": "unknown",
            "status": "online" if self.is_online else "offline",
            "busy": self.job is not None,
            "labels": [{"id": 0, "name": label, "type": "custom"} for label in self.labels],
            "runner_group_id": self.group_id,
        }


@dataclass(slots=True, eq=False)
class Job:
    """A job of a run: how long it takes on a runner, and how it will end there."""

    id: int
    run: Run
    _: KW_ONLY
    name: str
    labels: tuple[str, ...]
    duration: timedelta
    outcome: str
    created_at: datetime
    status: str = QUEUED
    conclusion: str | None = None
    runner_id: int | None = None
    runner_name: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    keys: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = _lowered(self.labels)

    def json(self) -> dict[str, Any]:
        """Return the job as GitHub shows it."""
        full_name = self.run.repository.full_name
        return {
            "id": self.id,
            "run_id": self.run.id,
            "run_attempt": 1,
            "name": self.name,
            "workflow_name": self.run.name,
            "status": self.status,
            "conclusion": self.conclusion,
            "labels": list(self.labels),
            "runner_id": self.runner_id,
            "runner_name": self.runner_name,
            "head_branch": self.run.branch,
            "head_sha": f"{self.run.id:040x}",
            "html_url": f"https://github.invalid/{full_name}/actions/runs/{self.run.id}/job/{self.id}",
            "created_at": self.created_at,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
        }


def _lowered(labels: tuple[str, ...]) -> frozenset[str]:
    # GitHub compares labels without regard to case.
    return frozenset(label.lower() for label in labels)
