from __future__ import annotations

import asyncio
from functools import partial

import pytest

from bramley.base.errors import BadRequest, Conflict, Gone
from bramley.base.secret import Secret
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.jobs import Phase, State
from bramley.dispatch.store import job_updates, sql
from bramley.dispatch.store.operations import rows
from bramley.dispatch.store.records import Pod
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import (
    NOW,
    POOL,
    SECOND,
    a_pod,
    a_report,
    claimed,
    enqueue,
    minted,
    state_of,
)

pytestmark = pytest.mark.real_time


async def test_no_job_is_given_to_two_pods_and_no_pod_gets_two_jobs(store: Store) -> None:
    await enqueue(store, *range(1, 21))

    polls = [store.claim(a_pod(number % 30), "macos", NOW) for number in range(90)]
    claims = [claim for claim in await asyncio.gather(*polls) if claim is not None]

    jobs_of_pods = {(claim.pod.uid, claim.job_id) for claim in claims}
    assert len(jobs_of_pods) == 20
    assert len({uid for uid, _ in jobs_of_pods}) == 20
    assert {job for _, job in jobs_of_pods} == set(range(1, 21))


async def test_a_pod_that_asks_again_gets_the_same_claim_and_jit(store: Store) -> None:
    await enqueue(store, 1, 2)
    first = await minted(store, 1)

    again = await claimed(store, 1)

    assert (again.handle, again.job_id) == (first.handle, first.job_id)
    assert again.jit == Secret("jit-1")
    assert "jit-1" not in repr(again)
    assert await state_of(store, 2) == State.QUEUED


async def test_the_jit_config_is_deleted_when_the_runner_is_online(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)

    assert await store.runner_online(claim.handle, NOW)
    assert not await store.runner_online(claim.handle, NOW)

    found = await store.find_claim("uid-1")
    assert found is not None
    assert found.jit is None
    assert found.online_at == NOW


async def test_a_pod_whose_runner_was_online_is_gone(store: Store) -> None:
    await enqueue(store, 1, 2)
    claim = await minted(store, 1)
    await store.runner_online(claim.handle, NOW)

    with pytest.raises(Gone, match="runner-1"):
        await store.claim(a_pod(1), "macos", NOW)


async def test_no_jit_config_is_stored_before_the_stamp_or_twice(store: Store) -> None:
    await enqueue(store, 1)
    claim = await claimed(store, 1)

    assert not await store.mint(claim.handle, "", Secret("early"), 1, NOW)
    assert await store.stamp(claim.handle, "gh-1", NOW)
    assert not await store.stamp(claim.handle, "gh-2", NOW)
    assert await store.mint(claim.handle, "gh-1", Secret("jit"), 1, NOW)
    assert not await store.mint(claim.handle, "gh-1", Secret("late"), 1, NOW)


async def test_a_stale_handle_changes_nothing(store: Store) -> None:
    await enqueue(store, 1)
    old = await claimed(store, 1)
    assert await store.release(old.handle, "stamp failed", NOW)
    new = await claimed(store, 2)

    assert new.job_id == old.job_id
    assert new.generation > old.generation
    assert not await store.stamp(old.handle, "gh-1", NOW)
    assert not await store.mint(old.handle, "gh-1", Secret("late"), 1, NOW)
    assert not await store.release(old.handle, "again", NOW)
    assert await state_of(store, 1) == State.CLAIMED
    assert await store.stamp(new.handle, "gh-2", NOW)


async def test_concurrent_releases_succeed_once(store: Store) -> None:
    await enqueue(store, 1)
    claim = await claimed(store, 1)

    done = await asyncio.gather(*(store.release(claim.handle, "test", NOW) for _ in range(8)))

    assert sorted(done) == [False] * 7 + [True]
    assert (await store.timeline(1)).job.generation == 2


async def test_a_completed_job_is_never_queued_again(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)
    await store.apply_report(a_report(1, Phase.COMPLETED, runner_name="gh-1"), POOL, NOW)

    await store.apply_report(a_report(1), POOL, NOW)

    assert not await store.release(claim.handle, "late", NOW)
    assert await state_of(store, 1) == State.COMPLETED
    assert await store.claim(a_pod(2), "macos", NOW) is None


async def test_a_release_after_a_cancellation_does_not_queue_the_job(store: Store) -> None:
    await enqueue(store, 1)
    await store.cancel(1, NOW)

    assert not await store.database.run(partial(job_updates.requeue, 1, NOW))
    assert await state_of(store, 1) == State.CANCELLED


@pytest.mark.parametrize(
    ("job_id", "pod", "index"),
    [
        (1, Pod("other", "other"), "job"),
        (2, Pod("runner-1", "other"), "pod_name"),
        (2, Pod("other", "uid-1"), "pod"),
    ],
)
async def test_the_database_refuses_a_second_claim_of_a_pod_or_a_job(
    store: Store, job_id: int, pod: Pod, index: str
) -> None:
    await enqueue(store, 1)
    await claimed(store, 1)
    second = partial(
        rows,
        sql.ADD_CLAIM,
        job_id=job_id,
        generation=9,
        pod_name=pod.name,
        pod_uid=pod.uid,
        host="",
        image="",
        pool="macos",
        account="acme",
        now=0,
    )

    with pytest.raises(Conflict, match=index):
        await store.database.run(second)


async def test_a_job_that_ended_while_it_is_claimed_frees_its_pod(store: Store) -> None:
    await enqueue(store, 1, 2)
    claim = await claimed(store, 1)
    await store.apply_report(a_report(1, Phase.COMPLETED, conclusion="cancelled"), POOL, NOW)

    assert not await store.stamp(claim.handle, "gh-1", NOW)
    assert (await claimed(store, 1)).job_id == 2


async def test_a_pod_that_had_its_runner_gets_no_other_job(store: Store) -> None:
    await enqueue(store, 1, 2)
    await minted(store, 1)
    await store.apply_report(a_report(1, Phase.COMPLETED, runner_name="gh-1"), POOL, NOW)
    await store.pod_stopped("runner-1", NOW, NOW)

    with pytest.raises(Gone, match="runner-1"):
        await store.claim(a_pod(1), "macos", NOW)


async def test_a_pod_that_stopped_before_its_runner_gives_the_job_back(store: Store) -> None:
    await enqueue(store, 1)
    await claimed(store, 1)

    assert await store.pod_stopped("runner-1", NOW + SECOND, NOW + SECOND) == ()

    assert await state_of(store, 1) == State.QUEUED
    with pytest.raises(Gone):
        await store.claim(a_pod(1), "macos", NOW)


async def test_a_pod_that_stopped_with_a_runner_leaves_the_decision_to_github(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)

    (doubtful,) = await store.pod_stopped("runner-1", NOW + SECOND, NOW + SECOND)

    assert doubtful.handle == claim.handle
    assert await state_of(store, 1) == State.CLAIMED
    assert await store.release(claim.handle, "runner removed", NOW + SECOND)
    assert await state_of(store, 1) == State.QUEUED


async def test_a_repeated_stop_can_only_bring_the_end_forward(store: Store) -> None:
    await enqueue(store, 1)
    await minted(store, 1)
    for seconds in (5, 3, 9):
        await store.pod_stopped("runner-1", NOW + seconds * SECOND, NOW + 10 * SECOND)

    found = await store.find_claim("uid-1")

    assert found is not None
    assert found.ended_at == NOW + 3 * SECOND


async def test_a_displaced_job_goes_to_the_claim_that_held_the_other(store: Store) -> None:
    """GitHub gave each of two runners the job of the other."""
    await enqueue(store, 1, 2)
    one = await minted(store, 1)
    two = await minted(store, 2)

    await store.apply_report(a_report(2, Phase.IN_PROGRESS, runner_name="gh-1"), POOL, NOW)

    timelines = [await store.timeline(job_id) for job_id in (1, 2)]
    assert [found.job.state for found in timelines] == [State.CLAIMED, State.RUNNING]
    assert timelines[0].claims[-1].handle == two.handle
    assert timelines[1].claims[-1].handle == one.handle
    assert timelines[1].execution is not None
    assert timelines[1].execution.handle == one.handle


async def test_a_displaced_job_returns_to_the_queue_at_once(store: Store) -> None:
    await enqueue(store, 1)
    await minted(store, 1)

    await store.apply_report(a_report(9, Phase.IN_PROGRESS, runner_name="gh-1"), POOL, NOW)

    assert await state_of(store, 1) == State.QUEUED
    assert (await claimed(store, 2)).job_id == 1


async def test_a_runner_name_of_another_account_is_not_ours(store: Store) -> None:
    await enqueue(store, 1)
    await minted(store, 1)

    foreign = a_report(9, Phase.IN_PROGRESS, runner_name="gh-1", account="other")
    await store.apply_report(foreign, POOL, NOW)

    assert await state_of(store, 1) == State.CLAIMED


async def test_limits_hold_over_pools_and_concurrent_claims(store: Store) -> None:
    policy = Policy(limits={"acme": 3})
    await enqueue(store, *range(1, 11))
    for job_id in range(11, 21):
        await store.apply_report(a_report(job_id), type(POOL)("other"), NOW)

    polls = [
        store.claim(a_pod(number), pool, NOW, policy=policy)
        for number, pool in enumerate(["macos", "other"] * 10)
    ]
    claims = await asyncio.gather(*polls)

    assert sum(claim is not None for claim in claims) == 3


async def test_a_queued_job_wakes_a_waiting_poll(store: Store) -> None:
    with store.wakeups.waiting("macos") as waiter:
        waiter.reset()
        assert await store.claim(a_pod(1), "macos", NOW) is None
        await enqueue(store, 1)
        await asyncio.wait_for(waiter.wait(), 10)

    assert (await claimed(store, 1)).job_id == 1


async def test_a_job_that_waited_for_a_limit_wakes_a_poll_when_another_ends(store: Store) -> None:
    policy = Policy(limits={"acme": 1})
    await enqueue(store, 1, 2)
    await minted(store, 1)

    with store.wakeups.waiting("macos") as waiter:
        assert await store.claim(a_pod(2), "macos", NOW, policy=policy) is None
        waiter.reset()
        await store.apply_report(a_report(1, Phase.COMPLETED, runner_name="gh-1"), POOL, NOW)
        await asyncio.wait_for(waiter.wait(), 10)

    assert (await claimed(store, 2, policy=policy)).job_id == 2


async def test_reports_and_releases_of_the_same_jobs_leave_no_job_without_an_owner(
    store: Store,
) -> None:
    """Runners get each other's jobs while claims are released: every job is queued, held or running."""
    numbers = range(1, 13)
    await enqueue(store, *numbers)
    claims = {number: await minted(store, number) for number in numbers}
    started = [
        a_report(number, Phase.IN_PROGRESS, runner_name=f"gh-{number % 12 + 1}")
        for number in numbers
        if number % 2
    ]

    await asyncio.gather(
        *(store.apply_report(report, POOL, NOW) for report in started),
        *(store.release(claims[number].handle, "test", NOW) for number in numbers if number % 3),
    )

    for number in numbers:
        found = await store.timeline(number)
        held = [claim for claim in found.claims if claim.finished_at is None]
        if found.job.state == State.CLAIMED:
            assert len(held) == 1
        if found.job.state == State.QUEUED:
            assert held == []
    free = [await store.claim(a_pod(100 + number), "macos", NOW) for number in numbers]
    given = [claim.job_id for claim in free if claim is not None]
    assert len(given) == len(set(given))


@pytest.mark.parametrize("pod", [Pod("a\nb", "uid"), Pod("name", ""), Pod("name", "u" * 300)])
async def test_invalid_pods_are_refused(store: Store, pod: Pod) -> None:
    with pytest.raises(BadRequest, match="Pod"):
        await store.claim(pod, "macos", NOW)
