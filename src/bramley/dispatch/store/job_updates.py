"""Operations that apply GitHub's reports to jobs, and to the claims and executions that belong to them.

GitHub gives a queued job to any runner with matching labels, so the runner that executes a job may be another one than the claim's.
A row of a job is locked before the rows of its claims, in every operation.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from bramley.dispatch import fair_share
from bramley.dispatch.jobs import HELD, TERMINAL, Phase, Report, State, merge, next_state
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store import sql
from bramley.dispatch.store.operations import Operation, first, rows, wake
from bramley.dispatch.store.records import (
    Row,
    milliseconds,
    optional_milliseconds,
    report_of,
    report_values,
)

# GitHub writes the year 1 for times that it does not have. Ranks and time zones need a distance from the limits of a datetime.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def apply_report(report: Report, route: Route, now: datetime) -> Operation[State]:
    """Merge a report into its job, which is added if it is new, and return the job's state."""
    # Without a time of GitHub's the job has waited since now; the merge keeps the earliest.
    report = replace(
        report,
        queued_at=_usable(report.queued_at) or now,
        started_at=_usable(report.started_at),
        completed_at=_usable(report.completed_at),
    )
    yield from rows(sql.ADD_JOB, **report_values(report), now=milliseconds(now))
    row = yield from first(sql.LOCK_JOB, id=report.job_id)
    if row is None:
        raise LookupError(f"job {report.job_id} vanished inside its transaction")
    before = State(row["state"])
    facts = merge(report_of(row), report)
    # The account is part of the queue's order and of every claim, so it never changes.
    facts = replace(facts, account=row["account"])
    state = next_state(before, facts)
    pool = yield from _store(row, facts, state, route, now)
    if facts.phase >= Phase.IN_PROGRESS:
        yield from _record_execution(facts, now)
    # A job that people cancelled ended before GitHub reported its end.
    if state in TERMINAL and (before not in TERMINAL or row["phase"] < facts.phase):
        yield from _finish(facts, now)
    if state == State.QUEUED and pool:
        yield from wake(pool)
    return state


def _usable(time: datetime | None) -> datetime | None:
    return time if time is not None and _EARLIEST <= time < _LATEST else None


def _store(row: Row, facts: Report, state: State, route: Route, now: datetime) -> Operation[str]:
    # The first pool stays: a job must not be in the queues of two pools while labels of pools change.
    is_routed = bool(row["pool"])
    pool = row["pool"] or route.pool
    priority = row["priority"] if is_routed else route.priority
    turn = row["turn"]
    if state == State.QUEUED and (row["state"] != State.QUEUED or not is_routed):
        turn = yield from _turns(pool)
    yield from rows(
        sql.UPDATE_JOB,
        **{name: value for name, value in report_values(facts).items() if name != "account"},
        state=state.value,
        pool=pool,
        problem="" if pool else route.problem,
        priority=priority,
        rank=fair_share.rank(facts.queued_at or now, priority),
        turn=turn,
        now=milliseconds(now),
    )
    return pool


def _turns(pool: str) -> Operation[int]:
    row = yield from first(sql.READ_TURNS, pool=pool)
    return int(row["turns"]) if row else 0


def reroute(job_id: int, old_pool: str, route: Route, now: datetime) -> Operation[State | None]:
    """Give a job the pool of a route; return its state, or None if it ended, has another pool than the old one, or gets none.

    A job that a Pod has stays in its pool.
    """
    row = yield from first(sql.LOCK_JOB, id=job_id)
    if row is None or row["pool"] != old_pool or State(row["state"]) in TERMINAL:
        return None
    if old_pool and (not route.pool or State(row["state"]) in HELD):
        return None
    yield from rows(
        sql.ROUTE_JOB,
        id=job_id,
        pool=route.pool,
        problem="" if route.pool else route.problem,
        priority=route.priority,
        rank=fair_share.rank(report_of(row).queued_at or now, route.priority),
        turn=(yield from _turns(route.pool)),
        now=milliseconds(now),
    )
    if not route.pool:
        return None
    if row["state"] == State.QUEUED:
        yield from wake(route.pool)
    return State(row["state"])


def touch_job(job_id: int, now: datetime) -> Operation[None]:
    """Record that a job which has not ended was compared with GitHub."""
    row = yield from first(sql.TOUCH_JOB, id=job_id, now=milliseconds(now))
    # A poll that looked meanwhile has skipped the locked row.
    if row is not None and row["state"] == State.QUEUED and row["pool"]:
        yield from wake(row["pool"])


def _record_execution(facts: Report, now: datetime) -> Operation[None]:
    if not facts.runner_name:
        return
    claim = yield from first(
        sql.CLAIM_OF_RUNNER, runner_name=facts.runner_name, account=facts.account
    )
    yield from rows(
        sql.ADD_EXECUTION,
        job_id=facts.job_id,
        runner_name=facts.runner_name,
        handle=claim["handle"] if claim else None,
        started_at=optional_milliseconds(facts.started_at),
    )
    if claim is not None and claim["job_id"] != facts.job_id:
        yield from _exchange(claim, facts.job_id, now)
    if claim is not None:
        # Last, because the exchange locks another job, and jobs are locked before claims.
        online_at = min(facts.started_at or now, now)
        yield from rows(sql.RUNNER_ONLINE, handle=claim["handle"], now=milliseconds(online_at))


def _exchange(executing: Row, job_id: int, now: datetime) -> Operation[None]:
    """Give the claim of the executing runner this job, and its own job to the claim that held this one, or to the queue."""
    displaced = yield from _job_to_return(executing)
    holding = yield from first(sql.CLAIM_HOLDING, job_id=job_id)
    # A job has at most one unfinished claim at every moment, so the claims are emptied before they are filled.
    if holding is not None:
        yield from rows(
            sql.FINISH_CLAIM, handle=holding["handle"], outcome="displaced", now=milliseconds(now)
        )
    yield from rows(sql.SET_CLAIMED_JOB, handle=executing["handle"], job_id=job_id)
    if holding is not None and displaced is not None:
        yield from rows(sql.SET_CLAIMED_JOB, handle=holding["handle"], job_id=displaced)
    elif displaced is not None:
        yield from requeue(displaced, now)
    elif holding is not None and holding["minted_at"] is None:
        yield from rows(sql.END_CLAIM, handle=holding["handle"], now=milliseconds(now))


def _job_to_return(executing: Row) -> Operation[int | None]:
    """Return the job that the claim of the executing runner holds and that has not started, locked."""
    if executing["job_id"] is None or executing["finished_at"] is not None:
        return None
    row = yield from first(sql.LOCK_JOB, id=executing["job_id"])
    # Read under the lock: the job may have been released, and claimed by another Pod, meanwhile.
    holding = yield from first(sql.CLAIM_HOLDING, job_id=executing["job_id"])
    is_held = holding is not None and holding["handle"] == executing["handle"]
    is_claimed = row is not None and row["state"] == State.CLAIMED
    return int(executing["job_id"]) if is_held and is_claimed else None


def _finish(facts: Report, now: datetime) -> Operation[None]:
    """End the execution of a job that ended, and the claim that holds it."""
    yield from rows(
        sql.END_EXECUTION,
        job_id=facts.job_id,
        ended_at=milliseconds(facts.completed_at or now),
        conclusion=facts.conclusion,
    )
    yield from finish_claim(facts.job_id, facts.conclusion or "completed", now)


def finish_claim(job_id: int, outcome: str, now: datetime) -> Operation[None]:
    """Finish the claim that holds a job; a Pod that has no runner yet is free again."""
    claim = yield from first(sql.CLAIM_HOLDING, job_id=job_id)
    if claim is None:
        return
    yield from rows(
        sql.FINISH_CLAIM, handle=claim["handle"], outcome=outcome, now=milliseconds(now)
    )
    # A Pod with a runner may still get another job from GitHub, so it is occupied until it stops.
    if claim["minted_at"] is None:
        yield from rows(sql.END_CLAIM, handle=claim["handle"], now=milliseconds(now))
    yield from wake_account(claim["account"])


def wake_account(account: str) -> Operation[None]:
    """Wake a poll of each pool where jobs of this account may have waited for its limit."""
    for row in (yield from rows(sql.QUEUES_OF_ACCOUNT, account=account)):
        yield from wake(row["pool"])


def requeue(job_id: int, now: datetime) -> Operation[bool]:
    """Return a claimed or running job to the queue under a new generation; False if it is neither."""
    row = yield from first(sql.REQUEUE_JOB, id=job_id, now=milliseconds(now))
    if row is None:
        return False
    yield from wake(row["pool"])
    return True


def cancel(job_id: int, now: datetime) -> Operation[bool]:
    """Cancel a job that has not ended; its claim is finished."""
    row = yield from first(sql.CANCEL_JOB, id=job_id, now=milliseconds(now))
    if row is None:
        return False
    yield from finish_claim(job_id, "cancelled", now)
    return True
