"""States of a job, and the merge of GitHub's reports of it; pure.

A report is a `workflow_job` event or what a query of GitHub returned. Reports arrive in any order, repeated or not at all, so
`merge` is commutative, associative and idempotent: the same set of reports always gives the same facts. A job is identified by
GitHub's workflow job id; another attempt of a run has jobs with other ids.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any


class State(StrEnum):
    """The state of a job in the queue; only a release moves it back, from claimed or running to queued."""

    WAITING = "waiting"
    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({State.COMPLETED, State.CANCELLED})
HELD = frozenset({State.CLAIMED, State.RUNNING})


class Phase(IntEnum):
    """How far GitHub has reported a job to be; a later report never lowers it."""

    WAITING = 1
    QUEUED = 2
    IN_PROGRESS = 3
    COMPLETED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What GitHub has reported about one job; empty texts and None are unknown."""

    job_id: int
    phase: Phase
    account: str
    repository: str = ""
    labels: tuple[str, ...] = ()
    run_id: int = 0
    run_attempt: int = 1
    workflow: str = ""
    name: str = ""
    branch: str = ""
    sha: str = ""
    runner_name: str = ""
    conclusion: str = ""
    queued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


_TIMES = frozenset({"queued_at", "started_at", "completed_at"})


def merge(known: Report, report: Report) -> Report:
    """Return the facts of both: the furthest phase, the earliest times, and the larger value of all that GitHub never changes."""
    # Maximum and minimum of each field alone, so that the order of reports cannot matter.
    values: dict[str, Any] = {
        field.name: _merged(field.name, getattr(known, field.name), getattr(report, field.name))
        for field in fields(Report)
    }
    return Report(**values)


def _merged(field: str, known: Any, other: Any) -> Any:
    if field not in _TIMES:
        return max(known, other)
    return min((time for time in (known, other) if time is not None), default=None)


def next_state(current: State, facts: Report) -> State:
    """Return the state of a job after its facts changed; a job that ended stays as it is."""
    if current in TERMINAL:
        return current
    if facts.phase == Phase.COMPLETED:
        return State.CANCELLED if facts.conclusion == "cancelled" else State.COMPLETED
    if facts.phase == Phase.IN_PROGRESS:
        return State.RUNNING
    if current in HELD:
        return current
    return State.QUEUED if facts.phase == Phase.QUEUED else State.WAITING
