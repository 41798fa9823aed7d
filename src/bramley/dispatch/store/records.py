"""The values that the store returns and accepts, and the conversion of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bramley.base.secret import Secret
from bramley.dispatch.jobs import Phase, Report, State

Row = Mapping[str, Any]
MAX_LISTED = 1000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook delivery that is stored and not processed yet."""

    id: int
    guid: str
    event: str
    body: bytes = field(repr=False)
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Pod:
    """The Pod that asks for a job; uid and name are those of its token."""

    name: str
    uid: str
    host: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job reserved for a Pod; every later change needs its `handle`."""

    handle: int
    job_id: int | None
    generation: int
    pod: Pod
    pool: str
    account: str
    claimed_at: datetime
    stamped_at: datetime | None
    minted_at: datetime | None
    jit: Secret | None
    runner_name: str
    runner_id: int | None
    online_at: datetime | None
    finished_at: datetime | None  # its job ended, or was given back
    ended_at: datetime | None  # its Pod is free or gone
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The runner that really ran a job, and the claim of its Pod if it is one of ours."""

    job_id: int
    runner_name: str
    handle: int | None
    started_at: datetime | None
    ended_at: datetime | None
    conclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job with GitHub's facts and its place in the queue."""

    facts: Report
    state: State
    pool: str
    problem: str
    priority: int
    generation: int
    updated_at: datetime

    @property
    def id(self) -> int:
        """Return GitHub's workflow job id."""
        return self.facts.job_id


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that happened to a job; the first claim comes first."""

    job: Job
    claims: tuple[Claim, ...]
    execution: Execution | None


@dataclass(frozen=True, slots=True)
class LiveClaim:
    """A claim whose job or Pod has not ended, and its job unless that is deleted."""

    claim: Claim
    job: Job | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """The jobs of one pool; `queued` does not include those `withheld` by the limit of their account."""

    pool: str
    queued: int
    oldest_queued_at: datetime | None  # of all queued jobs, also those withheld
    withheld: int
    claimed: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """What is before a job in the queue of its pool; `active` counts claims whose job has not ended."""

    ahead_of_account: int  # jobs of the same account that are served first
    queued_in_pool: int
    active_of_account: int  # in all pools, as its limit counts
    active_in_pool: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSignals:
    """The demand for the Pods of one pool."""

    claimed: int
    occupied: int
    queued: int
    withheld: int
    p95_concurrent_last_hour: int


@dataclass(frozen=True, slots=True)
class ImageJobs:
    """The jobs that ended on Pods of one image; `finished` includes those that failed."""

    finished: int
    failed: int


@dataclass(frozen=True, slots=True)
class RollSignals:
    """The first poll of each Pod by name, and the jobs that ended per image."""

    first_polls: Mapping[str, datetime]
    images: Mapping[str, ImageJobs]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; empty values select all."""

    states: Sequence[State] = ()
    pool: str = ""
    account: str = ""
    before_id: int = 2**63 - 1
    limit: int = 100


def milliseconds(time: datetime) -> int:
    """Return a time as stored."""
    return (time - _EPOCH) // _MILLISECOND


def optional_milliseconds(time: datetime | None) -> int | None:
    """Return a time as stored, or None."""
    return None if time is None else milliseconds(time)


def moment(value: int) -> datetime:
    """Return a stored time."""
    return _EPOCH + value * _MILLISECOND


def json_ids(ids: Iterable[int | None]) -> str:
    """Return ids as the one parameter of a statement that reads several rows."""
    return msgspec.json.encode([each for each in ids if each is not None]).decode()


def page_size(limit: int) -> int:
    """Return how many rows to read for a limit that a caller requested."""
    return max(0, min(limit, MAX_LISTED))


def _optional(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def claim_of(row: Row) -> Claim:
    """Return the claim of a row."""
    times = ("stamped_at", "minted_at", "online_at", "finished_at", "ended_at")
    optional: dict[str, Any] = {name: _optional(row[name]) for name in times}
    plain = ("handle", "job_id", "generation", "pool", "account", "runner_name", "runner_id")
    return Claim(
        pod=Pod(row["pod_name"], row["pod_uid"], row["host"], row["image"]),
        claimed_at=moment(row["claimed_at"]),
        jit=None if row["jit"] is None else Secret(row["jit"]),
        outcome=row["outcome"],
        **optional,
        **{name: row[name] for name in plain},
    )


def execution_of(row: Row) -> Execution:
    """Return the execution of a row."""
    return Execution(
        job_id=row["job_id"],
        runner_name=row["runner_name"],
        handle=row["handle"],
        started_at=_optional(row["started_at"]),
        ended_at=_optional(row["ended_at"]),
        conclusion=row["conclusion"],
    )


_PLAIN = ("account", "repository", "run_id", "run_attempt", "workflow", "name", "branch", "sha")


def report_of(row: Row) -> Report:
    """Return GitHub's facts of a job's row."""
    return Report(
        job_id=row["id"],
        phase=Phase(row["phase"]),
        labels=tuple(msgspec.json.decode(row["labels"], type=list[str])),
        runner_name=row["runner_name"],
        conclusion=row["conclusion"],
        queued_at=_optional(row["queued_at"]),
        started_at=_optional(row["started_at"]),
        completed_at=_optional(row["completed_at"]),
        **{name: row[name] for name in _PLAIN},
    )


def report_values(report: Report) -> dict[str, Any]:
    """Return GitHub's facts as the columns of a job's row."""
    return {
        "id": report.job_id,
        "phase": int(report.phase),
        "labels": msgspec.json.encode(report.labels).decode(),
        "runner_name": report.runner_name,
        "conclusion": report.conclusion,
        "queued_at": optional_milliseconds(report.queued_at),
        "started_at": optional_milliseconds(report.started_at),
        "completed_at": optional_milliseconds(report.completed_at),
        **{name: getattr(report, name) for name in _PLAIN},
    }


def job_of(row: Row) -> Job:
    """Return the job of a row."""
    return Job(
        facts=report_of(row),
        state=State(row["state"]),
        pool=row["pool"],
        problem=row["problem"],
        priority=row["priority"],
        generation=row["generation"],
        updated_at=moment(row["updated_at"]),
    )
