from __future__ import annotations

from datetime import timedelta

import pytest

from bramley.base.errors import NotFound
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.jobs import Phase, State
from bramley.dispatch.store import reports
from bramley.dispatch.store.records import MAX_LISTED, ImageJobs, JobFilter, ScalingSignals
from bramley.dispatch.store.reports import RETENTION, p95_concurrency
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import (
    NOW,
    POOL,
    SECOND,
    a_pod,
    a_report,
    enqueue,
    minted,
    state_of,
)

pytestmark = pytest.mark.real_time
MINUTE = 60 * SECOND


async def finish(store: Store, number: int, conclusion: str) -> None:
    report = a_report(number, Phase.COMPLETED, runner_name=f"gh-{number}", conclusion=conclusion)
    await store.apply_report(report, POOL, NOW)


async def test_scaling_signals_count_pods_and_jobs(store: Store) -> None:
    await enqueue(store, 1, 2, 3, 4, 5)
    await enqueue(store, 6, 7, account="limited")
    await minted(store, 1)
    await minted(store, 2)
    await finish(store, 1, "success")

    signals = await store.scaling_signals(
        "macos", NOW + MINUTE, policy=Policy(limits={"limited": 1})
    )

    # The first job ended, its Pod has not stopped yet; one job of the limited account is running.
    assert signals == ScalingSignals(
        claimed=1, occupied=2, queued=4, withheld=1, p95_concurrent_last_hour=2
    )


async def test_signals_of_an_unknown_pool_are_zero(store: Store) -> None:
    signals = await store.scaling_signals("unknown", NOW)

    assert signals == ScalingSignals(
        claimed=0, occupied=0, queued=0, withheld=0, p95_concurrent_last_hour=0
    )


async def test_roll_signals_count_jobs_by_image(store: Store) -> None:
    await enqueue(store, 1, 2, 3)
    for number, conclusion in ((1, "success"), (2, "failure"), (3, "timed_out")):
        await minted(store, number, image="image:1" if number < 3 else "image:2")
        await finish(store, number, conclusion)

    signals = await store.roll_signals("macos", NOW)
    later = await store.roll_signals("macos", NOW + MINUTE)

    assert signals.images == {"image:1": ImageJobs(2, 1), "image:2": ImageJobs(1, 1)}
    assert later.images == {}


async def test_only_the_first_poll_of_a_pod_is_recorded(store: Store) -> None:
    assert await store.first_poll(a_pod(1), "macos", NOW)
    assert not await store.first_poll(a_pod(1), "macos", NOW + SECOND)
    assert (await store.roll_signals("macos", NOW)).first_polls == {"runner-1": NOW}

    await store.pod_stopped("runner-1", NOW + MINUTE, NOW + MINUTE)

    assert (await store.roll_signals("macos", NOW)).first_polls == {}


async def test_a_timeline_has_every_stage_with_vm_host_and_image(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)
    await store.runner_online(claim.handle, NOW)
    await finish(store, 1, "success")

    found = await store.timeline(1)

    (one,) = found.claims
    assert (one.pod.name, one.pod.host, one.pod.image) == ("runner-1", "mac-1", "image:1")
    assert (one.claimed_at, one.stamped_at, one.minted_at, one.online_at) == (NOW,) * 4
    assert found.job.facts.queued_at == NOW
    assert found.execution is not None
    assert found.execution.started_at == NOW + SECOND
    assert found.execution.ended_at == NOW + 2 * SECOND
    assert found.execution.runner_name == "gh-1"


async def test_an_unknown_job_has_no_timeline(store: Store) -> None:
    with pytest.raises(NotFound, match="404"):
        await store.timeline(404)


async def test_jobs_are_listed_by_state_pool_and_account(store: Store) -> None:
    await enqueue(store, 1, 2, 3)
    await enqueue(store, 4, account="other")
    await store.cancel(2, NOW)

    async def ids(**selection: object) -> list[int]:
        found = await store.jobs(JobFilter(**selection))  # type: ignore[arg-type]
        return [job.id for job in found]

    assert await ids() == [4, 3, 2, 1]
    assert await ids(states=(State.CANCELLED,)) == [2]
    assert await ids(states=(State.QUEUED, State.CANCELLED), account="acme") == [3, 2, 1]
    assert await ids(pool="other") == []
    assert await ids(limit=2, before_id=4) == [3, 2]
    assert await ids(limit=10 * MAX_LISTED) == [4, 3, 2, 1]


async def test_a_cancelled_job_stays_cancelled_and_its_end_is_recorded(store: Store) -> None:
    await enqueue(store, 1)
    await minted(store, 1)
    assert await store.cancel(1, NOW)
    assert not await store.cancel(1, NOW)

    await finish(store, 1, "failure")

    found = await store.timeline(1)
    assert found.job.state == State.CANCELLED
    assert found.execution is not None
    assert found.execution.conclusion == "failure"


async def test_what_ended_before_the_retention_is_deleted(store: Store) -> None:
    await store.receive("guid-1", "ping", b"{}", NOW)
    (delivery,) = await store.pending_deliveries()
    await store.skip(delivery.id, "not a job", NOW)
    await enqueue(store, 1, 2)
    await minted(store, 1)
    await finish(store, 1, "success")
    await store.pod_stopped("runner-1", NOW, NOW)

    assert await store.delete_expired(NOW + RETENTION) == 0
    # The job and the delivery.
    assert await store.delete_expired(NOW + RETENTION + SECOND) == 2

    assert await store.find_claim("uid-1") is None
    assert await state_of(store, 2) == State.QUEUED
    assert await store.receive("guid-1", "ping", b"{}", NOW)
    with pytest.raises(NotFound):
        await store.timeline(1)


async def test_batches_continue_until_every_table_is_done(store: Store) -> None:
    await enqueue(store, 1)
    await finish(store, 1, "success")
    for number in range(3):
        await store.receive(f"guid-{number}", "ping", str(number).encode(), NOW)
    for delivery in await store.pending_deliveries():
        await store.skip(delivery.id, "not a job", NOW)
    later = NOW + RETENTION + SECOND

    batches = 0
    while await store.database.run(lambda: reports.delete_expired(later, batch=1)):
        batches += 1

    assert batches == 3
    assert await store.receive("guid-2", "ping", b"2", NOW)


async def test_the_percentile_counts_minutes_with_sessions_only() -> None:
    now_ms = int(NOW.timestamp() * 1000)
    minute = 60_000
    steady = [(now_ms - 20 * minute, now_ms)] * 2
    peak = [(now_ms - 10 * minute, now_ms - 9 * minute)] * 5

    assert p95_concurrency([], NOW) == 0
    assert p95_concurrency(steady, NOW) == 2
    assert p95_concurrency([*steady, *peak], NOW) == 2
    assert p95_concurrency([(now_ms - 50 * 60 * minute, None)], NOW) == 0
    assert p95_concurrency([(now_ms - timedelta(hours=3) // SECOND * 1000, None)], NOW) == 1
