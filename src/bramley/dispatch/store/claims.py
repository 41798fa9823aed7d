"""Operations on claims: a job is claimed for a Pod, the Pod is stamped, the JIT config is stored, the runner comes online.

Each step is a compare-and-set by the claim's handle and returns False if the claim has moved on. A crash between two steps leaves
a claim that the same Pod finds again, or that is released by its handle.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime

from bramley.base.errors import Gone
from bramley.base.secret import Secret
from bramley.dispatch import fair_share
from bramley.dispatch.fair_share import Candidate, Policy
from bramley.dispatch.jobs import HELD, State
from bramley.dispatch.store import sql
from bramley.dispatch.store.job_updates import requeue, wake_account
from bramley.dispatch.store.operations import Operation, first, rows
from bramley.dispatch.store.records import (
    Claim,
    LiveClaim,
    Pod,
    Row,
    claim_of,
    job_of,
    json_ids,
    milliseconds,
    page_size,
)


def claim(
    pod: Pod, pool: str, policy: Policy, now: datetime, *, excluded: Container[str] = ()
) -> Operation[Claim | None]:
    """Return the Pod's claim, a new one if it has none, or None without a job; raise Gone if the Pod has had its runner.

    Accounts that are excluded get no new claim.
    """
    known = yield from _of_pod(pod)
    # Nothing is written for a poll that finds no job.
    if known is not None or not (yield from first(sql.HAS_QUEUED, pool=pool)):
        return known
    turns = yield from _lock_pool(pool, now)
    # Read again under the lock: another request of this Pod may have been first.
    known = yield from _of_pod(pod)
    if known is not None:
        return known
    found = yield from rows(sql.CANDIDATES, pool=pool)
    found = [row for row in found if row["account"] not in excluded]
    for account in fair_share.order(_candidates(found, turns), policy):
        new = yield from _claim_for(account, pod, pool, policy, now)
        if new is not None:
            at = milliseconds(now)
            yield from rows(sql.NEXT_TURN, pool=pool, now=at)
            yield from rows(sql.SERVED, pool=pool, account=account, turn=turns + 1, now=at)
            return new
    return None


def _lock_pool(pool: str, now: datetime) -> Operation[int]:
    """Lock the queue of a pool and return its turns; the retention may delete an unused pool at any time."""
    while (locked := (yield from first(sql.LOCK_POOL, pool=pool))) is None:
        yield from rows(sql.ADD_POOL, pool=pool, now=milliseconds(now))
    return int(locked["turns"])


def _of_pod(pod: Pod) -> Operation[Claim | None]:
    row = yield from first(sql.CLAIM_OF_POD, pod_uid=pod.uid)
    if row is None:
        return None
    # A JIT config starts a runner once, so a Pod that polls after its runner was online has no use for it.
    if row["online_at"] is not None:
        raise Gone(f"Pod {pod.name} has had its runner, which was online")
    if row["ended_at"] is None:
        return claim_of(row)
    if row["minted_at"] is not None or row["outcome"] == STOPPED:
        raise Gone(f"Pod {pod.name} has had its runner")
    return None


def _candidates(found: Sequence[Row], turns: int) -> list[Candidate]:
    return [
        Candidate(
            account=row["account"],
            active=row["active"],
            active_everywhere=row["active_everywhere"],
            rank=row["rank"],
            turns_waited=max(turns - max(row["turn"], row["served_turn"]), 0),
            served_turn=row["served_turn"],
        )
        for row in found
    ]


def _claim_for(
    account: str, pod: Pod, pool: str, policy: Policy, now: datetime
) -> Operation[Claim | None]:
    if not (yield from _within_limit(account, policy, now)):
        return None
    job = yield from first(sql.TAKE_JOB, pool=pool, account=account, now=milliseconds(now))
    if job is None:
        return None
    row = yield from first(
        sql.ADD_CLAIM,
        job_id=job["id"],
        generation=job["generation"],
        pod_name=pod.name,
        pod_uid=pod.uid,
        host=pod.host,
        image=pod.image,
        pool=pool,
        account=account,
        now=milliseconds(now),
    )
    return claim_of(row) if row else None


def _within_limit(account: str, policy: Policy, now: datetime) -> Operation[bool]:
    if account not in policy.limits:
        return True
    # The limit holds over all pools, and claims of other pools are not serialized by the lock of this pool.
    while (yield from first(sql.LOCK_ACCOUNT, account=account)) is None:
        yield from rows(sql.ADD_ACCOUNT, account=account, now=milliseconds(now))
    row = yield from first(sql.COUNT_ACTIVE, account=account)
    return policy.headroom(account, row["active"] if row else 0) != 0


def stamp(handle: int, runner_name: str, now: datetime) -> Operation[bool]:
    """Record that the Pod has its owner label, and the name of its runner before it is requested from GitHub."""
    done = yield from first(
        sql.STAMP, handle=handle, runner_name=runner_name, now=milliseconds(now)
    )
    return done is not None


def restamp(handle: int, old_name: str, new_name: str, now: datetime) -> Operation[bool]:
    """Replace the runner's name of a stamped claim whose JIT config was never stored; only one caller succeeds."""
    done = yield from first(
        sql.RESTAMP, handle=handle, old_name=old_name, new_name=new_name, now=milliseconds(now)
    )
    return done is not None


def mint(
    handle: int, runner_name: str, jit: Secret, runner_id: int, now: datetime
) -> Operation[bool]:
    """Store the JIT config of the runner of a stamped claim, so that the Pod gets the same one when it asks again."""
    done = yield from first(
        sql.MINT,
        handle=handle,
        runner_name=runner_name,
        jit=jit.reveal(),
        runner_id=runner_id,
        now=milliseconds(now),
    )
    return done is not None


def runner_online(handle: int, now: datetime) -> Operation[bool]:
    """Record that GitHub sees the runner, and delete its JIT config."""
    done = yield from first(sql.RUNNER_ONLINE, handle=handle, now=milliseconds(now))
    return done is not None


def release(handle: int, outcome: str, now: datetime) -> Operation[bool]:
    """End a claim and return its job to the queue unless the job has started; False if the claim is finished."""
    row = yield from first(sql.READ_CLAIM, handle=handle)
    if row is None:
        return False
    # The job first, as everywhere, so that a release and a report cannot wait for each other.
    yield from rows(sql.LOCK_JOB, id=row["job_id"])
    done = yield from first(sql.FINISH_CLAIM, handle=handle, outcome=outcome, now=milliseconds(now))
    if done is None:
        return False
    yield from rows(sql.END_CLAIM, handle=handle, now=milliseconds(now))
    # The job of this moment: the claim may have exchanged jobs with another one since it was read. A job that has started, on
    # another runner than that of this claim, is not queued.
    job = yield from first(sql.LOCK_JOB, id=done["job_id"])
    if job is not None and job["state"] == State.CLAIMED:
        yield from requeue(done["job_id"], now)
    # Jobs of the account in other pools may have waited for its limit.
    yield from wake_account(done["account"])
    return True


def end_claim(handle: int, outcome: str, now: datetime) -> Operation[bool]:
    """Finish and end a claim without returning its job to the queue; False if it had ended, or if its job would be lost."""
    row = yield from first(sql.READ_CLAIM, handle=handle)
    if row is None:
        return False
    job = yield from first(sql.LOCK_JOB, id=row["job_id"])
    # Read under the lock: a job that has not started and loses its claim must be released instead.
    holding = yield from first(sql.CLAIM_HOLDING, job_id=row["job_id"])
    is_held = holding is not None and holding["handle"] == handle
    if is_held and job is not None and job["state"] == State.CLAIMED:
        return False
    done = yield from first(
        sql.FINISH_AND_END_CLAIM, handle=handle, outcome=outcome, now=milliseconds(now)
    )
    if done is None:
        return False
    yield from wake_account(done["account"])
    return True


def requeue_job(job_id: int, now: datetime) -> Operation[bool]:
    """Return a claimed or running job to the queue and end the claim that holds it; False if it is neither."""
    job = yield from first(sql.LOCK_JOB, id=job_id)
    if job is None or job["state"] not in HELD:
        return False
    holding = yield from first(sql.CLAIM_HOLDING, job_id=job_id)
    if holding is not None:
        yield from release(holding["handle"], "requeued", now)
    # A release has not queued a job that runs.
    yield from requeue(job_id, now)
    return True


STOPPED = "stopped"


def pod_stopped(pod_name: str, ended_at: datetime, now: datetime) -> Operation[tuple[Claim, ...]]:
    """End the claims of a Pod that stopped; return those whose job may have started, which only GitHub knows.

    A job whose Pod had no runner yet returns to the queue at once. A repeated report can only bring the end forward.
    """
    ended = milliseconds(min(ended_at, now))
    found = yield from rows(
        sql.CLAIMS_OF_POD_NAME, pod_name=pod_name, ended_at=ended, now=milliseconds(now)
    )
    doubtful = []
    for row in found:
        if row["finished_at"] is None and row["minted_at"] is None:
            yield from release(row["handle"], STOPPED, now)
        yield from rows(sql.STOP_CLAIM, handle=row["handle"], ended_at=ended)
        if row["finished_at"] is None and row["minted_at"] is not None:
            doubtful.append(claim_of(row))
    yield from rows(sql.DELETE_POD, pod_name=pod_name, now=milliseconds(now))
    return tuple(doubtful)


def first_poll(pod: Pod, pool: str, now: datetime) -> Operation[bool]:
    """Record the first poll of a Pod; later polls write nothing."""
    if (yield from first(sql.FIND_POD, pod_uid=pod.uid)) is not None:
        return False
    added = yield from first(
        sql.ADD_POD, pod_uid=pod.uid, pod_name=pod.name, pool=pool, now=milliseconds(now)
    )
    return added is not None


def find_claim(pod_uid: str) -> Operation[Claim | None]:
    """Return the newest claim of a Pod, also one that ended."""
    row = yield from first(sql.CLAIM_OF_POD, pod_uid=pod_uid)
    return claim_of(row) if row else None


def claim_of_pod_name(pod_name: str) -> Operation[Claim | None]:
    """Return the newest claim of the Pods with a name, also one that ended."""
    row = yield from first(sql.NEWEST_OF_POD_NAME, pod_name=pod_name)
    return claim_of(row) if row else None


def live_claims(after_handle: int, limit: int) -> Operation[tuple[LiveClaim, ...]]:
    """Return claims whose job or Pod has not ended, by handle, with their jobs."""
    found = yield from rows(sql.LIVE_CLAIMS, after_handle=after_handle, max=page_size(limit))
    claims = [claim_of(row) for row in found]
    of_claims = yield from rows(sql.JOBS_BY_ID, ids=json_ids(each.job_id for each in claims))
    jobs = {row["id"]: job_of(row) for row in of_claims}
    return tuple(LiveClaim(each, jobs.get(each.job_id)) for each in claims)
