"""Timelines of jobs for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.base.secret import Secret
from bramley.dispatch.jobs import Phase, Report, State
from bramley.dispatch.store.records import Claim, Execution, Job, Pod, Timeline

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
JIT = "canary-jit-config"
_PHASES = {
    State.WAITING: Phase.WAITING,
    State.RUNNING: Phase.IN_PROGRESS,
    State.COMPLETED: Phase.COMPLETED,
    State.CANCELLED: Phase.COMPLETED,
}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def a_job(state: State = State.QUEUED, *, pool: str = "macos", **facts: Any) -> Job:
    started = state in {State.RUNNING, State.COMPLETED}
    values: dict[str, Any] = {
        "job_id": 7,
        "phase": _PHASES.get(state, Phase.QUEUED),
        "account": "acme",
        "repository": "acme/app",
        "labels": ("tuist-macos", "ARM64"),
        "name": "build",
        "queued_at": at(0),
        "runner_name": "runner-1" if started else "",
        "started_at": at(5) if started else None,
        "completed_at": at(9) if state == State.COMPLETED else None,
        "conclusion": "success" if state == State.COMPLETED else "",
    }
    return Job(
        facts=Report(**(values | facts)),
        state=state,
        pool=pool,
        problem="" if pool else "no pool has a dispatchLabel among mac; the nearest label is macos",
        priority=0,
        generation=1,
        updated_at=at(10),
    )


def a_claim(handle: int = 1, **changes: Any) -> Claim:
    values: dict[str, Any] = {
        "handle": handle,
        "job_id": 7,
        "generation": 1,
        "pod": Pod(f"macos-runner-{handle}", f"uid-{handle}", f"mac-{handle}", "image:1"),
        "pool": "macos",
        "account": "acme",
        "claimed_at": at(1),
        "stamped_at": at(2),
        "minted_at": at(3),
        "jit": Secret(JIT),
        "runner_name": f"runner-{handle}",
        "runner_id": 70 + handle,
        "online_at": at(4),
        "finished_at": None,
        "ended_at": None,
        "outcome": "",
    }
    return Claim(**(values | changes))


def an_execution(handle: int | None = 1) -> Execution:
    return Execution(
        job_id=7,
        runner_name=f"runner-{handle}",
        handle=handle,
        started_at=at(5),
        ended_at=at(9),
        conclusion="success",
    )


def a_timeline(job: Job, *claims: Claim, execution: Execution | None = None) -> Timeline:
    return Timeline(job, claims, execution)
