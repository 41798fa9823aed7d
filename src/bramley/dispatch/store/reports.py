"""Operations that read: jobs and their timelines, and the signals for the autoscaler and for rolls; and the retention."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from bramley.base.errors import NotFound
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.store import sql
from bramley.dispatch.store.operations import Operation, first, rows
from bramley.dispatch.store.records import (
    ImageJobs,
    Job,
    JobFilter,
    RollSignals,
    ScalingSignals,
    Timeline,
    claim_of,
    execution_of,
    job_of,
    milliseconds,
    moment,
)

RETENTION = timedelta(days=30)
MAX_LISTED = 1000
# A session without an end is not counted for longer than a job may take.
MAX_SESSION = timedelta(hours=6)
_MINUTE_MS = 60_000
_WINDOW = timedelta(hours=1)
_MAX_PODS = 10_000


def jobs(selection: JobFilter) -> Operation[tuple[Job, ...]]:
    """Return jobs, those with the highest ids first."""
    found = yield from rows(
        sql.LIST_JOBS,
        before_id=selection.before_id,
        pool=selection.pool,
        account=selection.account,
        states="".join(f"|{state.value}|" for state in selection.states),
        max=max(0, min(selection.limit, MAX_LISTED)),
    )
    return tuple(job_of(row) for row in found)


def timeline(job_id: int) -> Operation[Timeline]:
    """Return everything about a job; raise NotFound for an unknown one."""
    job = yield from first(sql.READ_JOB, id=job_id)
    if job is None:
        raise NotFound(f"job {job_id} is not known")
    claims = yield from rows(sql.CLAIMS_OF_JOB, job_id=job_id)
    execution = yield from first(sql.READ_EXECUTION, job_id=job_id)
    return Timeline(
        job_of(job),
        tuple(claim_of(row) for row in claims),
        execution_of(execution) if execution else None,
    )


def scaling_signals(pool: str, policy: Policy, now: datetime) -> Operation[ScalingSignals]:
    """Return the demand for a pool; jobs beyond the limit of their account are withheld."""
    oldest = milliseconds(now - MAX_SESSION)
    counts = yield from first(sql.COUNT_CLAIMS, pool=pool, oldest=oldest)
    queued = yield from rows(sql.QUEUED_PER_ACCOUNT, pool=pool)
    per_account = yield from rows(sql.ACTIVE_PER_ACCOUNT)
    active = {row["account"]: row["active"] for row in per_account}
    admitted = sum(_admitted(row["account"], row["queued"], active, policy) for row in queued)
    sessions = yield from rows(
        sql.SESSIONS,
        pool=pool,
        oldest=milliseconds(now - _WINDOW - MAX_SESSION),
        since=milliseconds(now - _WINDOW),
    )
    spans = ((row["claimed_at"], row["ended_at"]) for row in sessions)
    return ScalingSignals(
        claimed=counts["claimed"] if counts else 0,
        occupied=counts["occupied"] if counts else 0,
        queued=admitted,
        withheld=sum(row["queued"] for row in queued) - admitted,
        p95_concurrent_last_hour=p95_concurrency(spans, now),
    )


def _admitted(account: str, queued: int, active: dict[str, int], policy: Policy) -> int:
    headroom = policy.headroom(account, active.get(account, 0))
    return queued if headroom is None else min(queued, headroom)


def p95_concurrency(spans: Iterable[tuple[int, int | None]], now: datetime) -> int:
    """Return the 95th percentile of concurrent sessions over the minutes of the last hour that had any."""
    end = milliseconds(now)
    start = end - milliseconds_of(_WINDOW)
    minutes = [0] * 60
    for began, ended in spans:
        last = min(end, began + milliseconds_of(MAX_SESSION) if ended is None else ended)
        begin = max(began, start)
        if last > begin:
            for minute in range(
                (begin - start) // _MINUTE_MS, (last - 1 - start) // _MINUTE_MS + 1
            ):
                minutes[minute] += 1
    busy = sorted(count for count in minutes if count)
    return busy[math.ceil(len(busy) * 0.95) - 1] if busy else 0


def milliseconds_of(duration: timedelta) -> int:
    """Return a duration in milliseconds."""
    return duration // timedelta(milliseconds=1)


def roll_signals(pool: str, since: datetime) -> Operation[RollSignals]:
    """Return the first polls of the Pods of a pool, and the jobs that ended since a time, by image."""
    polls = yield from rows(sql.FIRST_POLLS, pool=pool, max=_MAX_PODS)
    images = yield from rows(sql.JOBS_PER_IMAGE, pool=pool, since=milliseconds(since))
    return RollSignals(
        {row["pod_name"]: moment(row["first_poll_at"]) for row in polls},
        {row["image"]: ImageJobs(row["finished"], row["failed"]) for row in images},
    )


def delete_expired(now: datetime, *, batch: int = 1000) -> Operation[int]:
    """Delete a batch of jobs that ended before the retention, and other rows of that age; return the number of jobs."""
    before = milliseconds(now - RETENTION)
    expired = yield from rows(sql.EXPIRED_JOBS, before=before, max=batch)
    for row in expired:
        for statement in (sql.DELETE_CLAIMS_OF_JOB, sql.DELETE_EXECUTION, sql.DELETE_JOB):
            yield from rows(statement, id=row["id"])
    yield from rows(sql.DELETE_CLAIMS, before=before, max=batch)
    yield from rows(sql.DELETE_DELIVERIES, before=before, max=batch)
    yield from rows(sql.DELETE_PODS, before=before)
    return len(expired)
