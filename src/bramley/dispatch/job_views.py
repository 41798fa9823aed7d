"""Jobs as people see them: the JSON of the HTTP API, the stages of a timeline, and the lines of an export; pure.

A view has GitHub's facts and the times of the claims. It never has a JIT config.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from bramley.dispatch.jobs import HELD, TERMINAL, State
from bramley.dispatch.store.records import Claim, Execution, Job, Timeline

# Spreadsheets evaluate cells that begin so; some strip the last three first, and East Asian ones know the wide forms.
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n")


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all views; a reader ignores unknown fields, so that a newer server may add some."""


class JobView(_View, frozen=True, kw_only=True):
    """One job; `pod`, `host` and `image` are those of the Pod that has or had it, empty if there is none."""

    id: int
    state: str
    pool: str = ""
    problem: str = ""
    account: str = ""
    repository: str = ""
    workflow: str = ""
    name: str = ""
    branch: str = ""
    sha: str = ""
    run_id: int = 0
    run_attempt: int = 1
    labels: tuple[str, ...] = ()
    priority: int = 0
    queued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    conclusion: str = ""
    runner_name: str = ""
    host: str = ""
    image: str = ""
    pod: str = ""

    @property
    def has_ended(self) -> bool:
        """Return whether the job is completed or cancelled."""
        return self.state in TERMINAL


class JobList(_View, frozen=True, kw_only=True):
    """The response to a list request, those with the highest ids first."""

    jobs: tuple[JobView, ...]


class ClaimView(_View, frozen=True, kw_only=True):
    """One reservation of a job for a Pod."""

    claimed_at: datetime
    stamped_at: datetime | None = None
    minted_at: datetime | None = None
    online_at: datetime | None = None
    finished_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str = ""
    pod: str = ""
    host: str = ""
    image: str = ""
    runner_name: str = ""


class ExecutionView(_View, frozen=True, kw_only=True):
    """The runner that ran a job; `is_ours` is false for a runner that dispatch did not start."""

    runner_name: str
    is_ours: bool = True
    started_at: datetime | None = None
    ended_at: datetime | None = None
    conclusion: str = ""


class StageView(_View, frozen=True, kw_only=True):
    """A stage that a job has reached, and when."""

    stage: str
    at: datetime


class TimelineView(JobView, frozen=True, kw_only=True):
    """A job with its claims, the first one first, and its stages in order."""

    claims: tuple[ClaimView, ...] = ()
    execution: ExecutionView | None = None
    stages: tuple[StageView, ...] = ()


def current_claim(timeline: Timeline) -> Claim | None:
    """Return the claim of the Pod that has or had the job: the one that ran it, otherwise the newest; None while the job is queued."""
    execution, state = timeline.execution, timeline.job.state
    if execution is not None and state in TERMINAL | {State.RUNNING}:
        return next((each for each in timeline.claims if each.handle == execution.handle), None)
    if not timeline.claims or state not in TERMINAL | HELD:
        return None
    return timeline.claims[-1]


def job_view(job: Job, claim: Claim | None = None) -> JobView:
    """Return the view of a job, with the Pod of its claim if that is known."""
    return JobView(**_job_values(job, claim))


def list_view(timelines: Sequence[Timeline]) -> JobList:
    """Return the views of several jobs, each with its Pod."""
    return JobList(jobs=tuple(job_view(each.job, current_claim(each)) for each in timelines))


def claim_view(claim: Claim) -> ClaimView:
    """Return the view of a claim, without its JIT config."""
    return ClaimView(
        claimed_at=claim.claimed_at,
        stamped_at=claim.stamped_at,
        minted_at=claim.minted_at,
        online_at=claim.online_at,
        finished_at=claim.finished_at,
        ended_at=claim.ended_at,
        outcome=claim.outcome,
        pod=claim.pod.name,
        host=claim.pod.host,
        image=claim.pod.image,
        runner_name=claim.runner_name,
    )


def timeline_view(timeline: Timeline) -> TimelineView:
    """Return the view of everything that happened to a job."""
    return TimelineView(
        **_job_values(timeline.job, current_claim(timeline)),
        claims=tuple(claim_view(each) for each in timeline.claims),
        execution=_execution_view(timeline.execution),
        stages=tuple(StageView(stage=stage, at=at) for stage, at in stages(timeline)),
    )


def stages(timeline: Timeline) -> Iterator[tuple[str, datetime]]:
    """Yield the stages that a job has reached and their times, in order; GitHub's times have whole seconds."""
    job, claim, execution = timeline.job, current_claim(timeline), timeline.execution
    started_at = job.facts.started_at
    if started_at is None and execution is not None:
        started_at = execution.started_at
    ended_at = job.facts.completed_at or job.updated_at
    found = (
        ("queued", job.facts.queued_at),
        ("claimed", claim.claimed_at if claim else None),
        ("stamped", claim.stamped_at if claim else None),
        ("jit", claim.minted_at if claim else None),
        ("online", claim.online_at if claim else None),
        ("started", started_at),
        ("finished", ended_at if job.state in TERMINAL else None),
    )
    for stage, at in found:
        if at is not None:
            yield stage, at


def csv_header() -> str:
    """Return the first line of an export as CSV."""
    return _csv_line(EXPORT_COLUMNS)


def csv_row(timeline: Timeline) -> str:
    """Return the line of one job in an export as CSV; texts that a spreadsheet would evaluate get an apostrophe."""
    values = _export_values(timeline)
    return _csv_line([_cell(values[column]) for column in EXPORT_COLUMNS])


def json_line(timeline: Timeline) -> bytes:
    """Return the line of one job in an export as JSON lines."""
    return msgspec.json.encode(timeline_view(timeline)) + b"\n"


_SHARED = ("account", "repository", "workflow", "name", "branch", "sha", "run_id", "run_attempt")
_REPORTED = ("labels", "queued_at", "started_at", "completed_at", "conclusion")
EXPORT_COLUMNS = (
    *("id", "state", "conclusion", *_SHARED, "labels", "priority", "pool", "problem"),
    *("queued_at", "claimed_at", "stamped_at", "minted_at", "online_at", "started_at"),
    *("completed_at", "pod", "host", "image", "runner_name", "claims"),
)


def _job_values(job: Job, claim: Claim | None) -> dict[str, Any]:
    facts = job.facts
    return {
        "id": job.id,
        "state": job.state.value,
        "pool": job.pool,
        "problem": job.problem,
        "priority": job.priority,
        # GitHub's name of the runner counts: it may have given the job to another one.
        "runner_name": facts.runner_name or (claim.runner_name if claim else ""),
        "pod": claim.pod.name if claim else "",
        "host": claim.pod.host if claim else "",
        "image": claim.pod.image if claim else "",
        **{name: getattr(facts, name) for name in (*_SHARED, *_REPORTED)},
    }


def _execution_view(execution: Execution | None) -> ExecutionView | None:
    if execution is None:
        return None
    return ExecutionView(
        runner_name=execution.runner_name,
        is_ours=execution.handle is not None,
        started_at=execution.started_at,
        ended_at=execution.ended_at,
        conclusion=execution.conclusion,
    )


def _export_values(timeline: Timeline) -> dict[str, Any]:
    claim = current_claim(timeline)
    times = ("claimed_at", "stamped_at", "minted_at", "online_at")
    return {
        **_job_values(timeline.job, claim),
        **{name: getattr(claim, name, None) for name in times},
        "claims": len(timeline.claims),
    }


def _cell(value: Any) -> str:
    """Return a value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, int):
        # Numbers are not from outside, and a negative one stays a number.
        return str(value)
    if isinstance(value, datetime):
        return str(msgspec.to_builtins(value))
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
