"""The pool of a job: found late, or changed because the first one does not exist any more."""

from __future__ import annotations

import asyncio

import pytest

from bramley.dispatch.jobs import Phase, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import LATER, NOW, POOL, a_report, claimed, enqueue

pytestmark = pytest.mark.real_time

UNROUTED = Route("", "no pool has this label")


async def test_a_job_without_a_pool_is_routed_later_and_wakes_a_poll(store: Store) -> None:
    await store.apply_report(a_report(1), UNROUTED, NOW)

    with store.wakeups.waiting("macos") as waiter:
        waiter.reset()
        assert await store.reroute(1, "", Route("macos", priority=3), LATER) == State.QUEUED
        await asyncio.wait_for(waiter.wait(), 10)

    job = (await store.timeline(1)).job
    assert (job.pool, job.problem, job.priority) == ("macos", "", 3)
    assert (await claimed(store, 1)).job_id == 1


async def test_only_a_job_without_a_pool_is_routed(store: Store) -> None:
    await enqueue(store, 1)
    await store.apply_report(a_report(2, Phase.COMPLETED), UNROUTED, NOW)
    await store.apply_report(a_report(3), UNROUTED, NOW)
    await store.apply_report(a_report(4, Phase.WAITING), UNROUTED, NOW)

    assert await store.reroute(1, "", Route("other"), NOW) is None
    assert await store.reroute(2, "", POOL, NOW) is None
    assert await store.reroute(3, "", Route("", "two pools match"), NOW) is None
    assert await store.reroute(4, "", POOL, NOW) == State.WAITING
    assert await store.reroute(404, "", POOL, NOW) is None

    jobs = [(await store.timeline(job_id)).job for job_id in (1, 2, 3, 4)]
    assert [job.pool for job in jobs] == ["macos", "", "", "macos"]
    assert jobs[2].problem == "two pools match"


@pytest.mark.parametrize("by_report", [True, False])
async def test_a_job_that_is_routed_late_has_waited_for_no_turn(
    store: Store, *, by_report: bool
) -> None:
    """It would otherwise be served before accounts with a smaller share, as if it had waited for all turns of the pool."""
    await store.apply_report(a_report(200, account="late"), UNROUTED, NOW)
    await store.apply_report(a_report(201, account="late"), POOL, NOW)
    await claimed(store, 200)
    await enqueue(store, *range(1, 100))
    for number in range(1, 99):
        await claimed(store, number)
    await enqueue(store, 300, account="new")

    if by_report:
        await store.apply_report(a_report(200, account="late"), POOL, NOW)
    else:
        await store.reroute(200, "", POOL, NOW)

    assert (await claimed(store, 300)).job_id == 300


async def test_unrouted_jobs_have_no_pool_and_have_not_ended(store: Store) -> None:
    await enqueue(store, 1)
    await store.apply_report(a_report(2), UNROUTED, NOW)
    await store.apply_report(a_report(3, Phase.COMPLETED), UNROUTED, NOW)
    await store.apply_report(a_report(4), UNROUTED, LATER)

    assert [job.id for job in await store.unstarted_jobs("", NOW)] == [2, 4]
    assert [job.id for job in await store.unstarted_jobs("", NOW, limit=1)] == [2]
    assert [job.id for job in await store.unstarted_jobs("", NOW, after_id=2)] == [4]
    assert [job.id for job in await store.unstarted_jobs("", LATER)] == [4]


async def test_a_queued_job_leaves_its_pool_and_a_claimed_one_stays(store: Store) -> None:
    await enqueue(store, 1, 2)
    await store.apply_report(a_report(3, Phase.WAITING), POOL, NOW)
    await claimed(store, 1)
    assert await store.queued_pools() == ("macos",)
    assert [job.id for job in await store.unstarted_jobs("macos", LATER)] == [2, 3]

    with store.wakeups.waiting("other") as waiter:
        waiter.reset()
        moved = [
            await store.reroute(number, "macos", Route("other"), LATER) for number in (1, 2, 3)
        ]
        await asyncio.wait_for(waiter.wait(), 10)

    assert moved == [None, State.QUEUED, State.WAITING]
    assert await store.queued_pools() == ("other",)
    assert await store.reroute(2, "macos", Route("third"), LATER) is None
    assert await store.reroute(2, "other", UNROUTED, LATER) is None
    assert (await claimed(store, 2, pool="other")).job_id == 2


async def test_a_poll_is_woken_after_a_queued_job_was_compared_with_the_forge(store: Store) -> None:
    await enqueue(store, 1)

    with store.wakeups.waiting("macos") as waiter:
        waiter.reset()
        await store.touch_job(1, LATER)
        await asyncio.wait_for(waiter.wait(), 10)
