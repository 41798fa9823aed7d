"""The forge whose jobs are dispatched, as a Protocol; `github_forge.py` implements it for GitHub.

A forge registers single-use runners, reports jobs and runners, and sends webhooks. Repositories are `owner/name`. A second forge is
one new module: docs/explanation/dispatch.md lists what it has to provide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from bramley.base.secret import Secret
from bramley.dispatch.jobs import Report


class RunnerState(StrEnum):
    """What the forge reports of a runner; GONE is positive evidence that it is not registered."""

    OFFLINE = "offline"
    IDLE = "idle"
    BUSY = "busy"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class NewRunner:
    """A registered runner and the configuration that starts it once."""

    runner_id: int
    jit: Secret


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """A webhook whose every attempt failed; `delivery_id` is its newest attempt."""

    delivery_id: int
    guid: str
    delivered_at: datetime


class Forge(Protocol):
    """Registers runners and answers questions about jobs.

    Errors of all calls: Unavailable, RateLimited with its wait, NotFound if the forge denies the repository, or Refused. After
    Unavailable it is unknown whether a write took effect. Every call ends within its deadline. No error contains a credential.
    """

    async def create_runner(self, repository: str, name: str, labels: Sequence[str]) -> NewRunner:
        """Register a runner for one job; AlreadyExists if the name is taken."""
        ...

    async def runner_state(self, repository: str, runner_id: int, name: str) -> RunnerState:
        """Return the state of a runner."""
        ...

    async def find_runner(self, repository: str, name: str) -> int | None:
        """Return the id of the runner with this name, or None if none is registered."""
        ...

    async def remove_runner(self, repository: str, runner_id: int) -> bool:
        """Remove a runner; True if it is not registered afterwards, False if it runs a job."""
        ...

    async def job(self, repository: str, job_id: int) -> Report | None:
        """Return what the forge knows of a job, or None if it has no such job."""
        ...

    async def unfinished_jobs(self, repository: str) -> Sequence[Report]:
        """Return the queued and running jobs of a repository."""
        ...

    async def failed_deliveries(self, since: datetime) -> Sequence[FailedDelivery]:
        """Return the webhooks sent since a time that no attempt delivered; perhaps only the newest, if there are too many to list."""
        ...

    async def redeliver(self, delivery_id: int) -> None:
        """Request another attempt of a webhook."""
        ...

    def is_short_of_requests(self, repository: str) -> bool:
        """Return whether the remaining requests are to be kept for runners, because they may not last until their reset."""
        ...

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether the forge signed this webhook."""
        ...
