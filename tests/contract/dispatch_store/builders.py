"""Reports, Pods and short ways through a job's life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bramley.base.secret import Secret
from bramley.dispatch.fair_share import NO_POLICY, Policy
from bramley.dispatch.jobs import Phase, Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store.records import Claim, Pod
from bramley.dispatch.store.store import Store

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATER = NOW + 60 * SECOND
POOL = Route("macos")


def a_report(
    job_id: int,
    phase: Phase = Phase.QUEUED,
    *,
    account: str = "acme",
    runner_name: str = "",
    conclusion: str = "success",
    at: datetime = NOW,
) -> Report:
    return Report(
        job_id=job_id,
        phase=phase,
        account=account,
        labels=("tuist-macos",),
        runner_name=runner_name,
        conclusion=conclusion if phase == Phase.COMPLETED else "",
        queued_at=at,
        started_at=at + SECOND if phase >= Phase.IN_PROGRESS else None,
        completed_at=at + 2 * SECOND if phase == Phase.COMPLETED else None,
    )


def a_pod(number: int, image: str = "image:1") -> Pod:
    return Pod(f"runner-{number}", f"uid-{number}", f"mac-{number}", image)


async def enqueue(store: Store, *job_ids: int, account: str = "acme") -> None:
    for job_id in job_ids:
        await store.apply_report(a_report(job_id, account=account), POOL, NOW)


async def claimed(
    store: Store,
    number: int,
    *,
    pool: str = "macos",
    policy: Policy = NO_POLICY,
    now: datetime = NOW,
) -> Claim:
    claim = await store.claim(a_pod(number), pool, now, policy=policy)
    assert claim is not None
    return claim


async def minted(store: Store, number: int, *, image: str = "image:1") -> Claim:
    """Return a claim whose Pod holds its JIT config; the runner is named after the Pod."""
    claim = await store.claim(a_pod(number, image), "macos", NOW)
    assert claim is not None
    assert await store.stamp(claim.handle, f"gh-{number}", NOW)
    assert await store.mint(
        claim.handle, f"gh-{number}", Secret(f"jit-{number}"), 100 + number, NOW
    )
    return claim


async def state_of(store: Store, job_id: int) -> State:
    return (await store.timeline(job_id)).job.state
