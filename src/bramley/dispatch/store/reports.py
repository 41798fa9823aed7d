"""Operations that read: jobs and their timelines, and the signals for the autoscaler and for rolls; and the retention."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from bramley.base.errors import NotFound
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.jobs import State
from bramley.dispatch.store import sql
from bramley.dispatch.store.operations import Operation, first, rows
from bramley.dispatch.store.records import (
    Claim,
    ImageJobs,
    Job,
    JobFilter,
    PoolStats,
    QueuePosition,
    RollSignals,
    Row,
    ScalingSignals,
    Timeline,
    claim_of,
    execution_of,
    job_of,
    json_ids,
    milliseconds,
    moment,
    page_size,
)

RETENTION = timedelta(days=30)
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
        states=_words(selection.states),
        max=page_size(selection.limit),
    )
    return tuple(job_of(row) for row in found)


def _words(states: Iterable[State]) -> str:
    return "".join(f"|{state.value}|" for state in states)


def queued_pools() -> Operation[tuple[str, ...]]:
    """Return the pools that have queued jobs."""
    found = yield from rows(sql.QUEUED_POOLS)
    return tuple(row["pool"] for row in found)


def unstarted_jobs(
    pool: str, since: datetime, after_id: int, limit: int
) -> Operation[tuple[Job, ...]]:
    """Return the jobs of a pool that no Pod has, by id; without a pool, those that have not ended and changed since a time."""
    found = yield from rows(
        sql.UNSTARTED_JOBS,
        pool=pool,
        since=milliseconds(since),
        after_id=after_id,
        max=page_size(limit),
    )
    return tuple(job_of(row) for row in found)


def stale_jobs(
    states: Sequence[State], before: datetime, after_id: int, limit: int
) -> Operation[tuple[Job, ...]]:
    """Return jobs in these states, not ended, that did not change since a time, by id."""
    found = yield from rows(
        sql.STALE_JOBS,
        states=_words(states),
        before=milliseconds(before),
        after_id=after_id,
        max=page_size(limit),
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


def ended_timelines(since: datetime, after_id: int, limit: int) -> Operation[tuple[Timeline, ...]]:
    """Return everything about the jobs that changed since a time, by id."""
    jobs = yield from rows(
        sql.JOBS_SINCE, since=milliseconds(since), after_id=after_id, max=page_size(limit)
    )
    ids = json_ids(row["id"] for row in jobs)
    claims: dict[int, list[Claim]] = {}
    for row in (yield from rows(sql.CLAIMS_OF_JOBS, ids=ids)):
        claims.setdefault(row["job_id"], []).append(claim_of(row))
    found = yield from rows(sql.EXECUTIONS_OF_JOBS, ids=ids)
    executions = {row["job_id"]: execution_of(row) for row in found}
    return tuple(
        Timeline(job_of(row), tuple(claims.get(row["id"], ())), executions.get(row["id"]))
        for row in jobs
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


def queue_stats(policy: Policy, now: datetime) -> Operation[tuple[PoolStats, ...]]:
    """Return the jobs of each pool that has any which have not ended, or has claims."""
    found = yield from rows(sql.OPEN_JOBS)
    per_account = yield from rows(sql.ACTIVE_PER_ACCOUNT)
    active = {row["account"]: row["active"] for row in per_account}
    with_claims = yield from rows(sql.POOLS_WITH_CLAIMS)
    groups: dict[str, list[Row]] = {row["pool"]: [] for row in with_claims}
    for row in found:
        groups.setdefault(row["pool"], []).append(row)
    admitted = {
        pool: sum(
            _admitted(row["account"], row["jobs"], active, policy)
            for row in group
            if row["state"] == State.QUEUED
        )
        for pool, group in groups.items()
    }
    return tuple(
        _pool_stats(pool, group, admitted[pool], now) for pool, group in sorted(groups.items())
    )


def _pool_stats(pool: str, group: Sequence[Row], admitted: int, now: datetime) -> PoolStats:
    counts = Counter[str]()
    for row in group:
        counts[row["state"]] += row["jobs"]
    times = [row["oldest"] for row in group if row["state"] == State.QUEUED]
    # GitHub's clock may be ahead of ours.
    oldest = min(times, default=None)
    return PoolStats(
        pool=pool,
        queued=admitted,
        oldest_queued_at=None if oldest is None else min(moment(oldest), now),
        withheld=counts[State.QUEUED] - admitted,
        claimed=counts[State.CLAIMED],
        running=counts[State.RUNNING],
    )


def queue_position(job_id: int) -> Operation[QueuePosition]:
    """Return what is before a job in the queue; raise NotFound for an unknown one."""
    row = yield from first(sql.QUEUE_POSITION, id=job_id)
    if row is None:
        raise NotFound(f"job {job_id} is not known")
    return QueuePosition(**row)


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
    """Delete a batch of jobs that ended before the retention, and other rows of that age; return 0 if all are deleted."""
    before = milliseconds(now - RETENTION)
    expired = yield from rows(sql.EXPIRED_JOBS, before=before, max=batch)
    for row in expired:
        for statement in (sql.DELETE_CLAIMS_OF_JOB, sql.DELETE_EXECUTION, sql.DELETE_JOB):
            yield from rows(statement, id=row["id"])
    # Every table counts: there are several deliveries per job, so batches that end with the jobs would leave most of them.
    deleted = len(expired)
    for statement in (sql.DELETE_CLAIMS, sql.DELETE_DELIVERIES, sql.DELETE_LOGS):
        deleted += len((yield from rows(statement, before=before, max=batch)))
    # Accounts last: those with a share are kept.
    for statement in (sql.DELETE_PODS, sql.DELETE_POOLS, sql.DELETE_SHARES, sql.DELETE_ACCOUNTS):
        yield from rows(statement, before=before)
    return deleted
