from __future__ import annotations

import asyncio

import pytest

from bramley.base.errors import BadRequest, Conflict, Gone
from bramley.base.secret import Secret
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.jobs import Phase, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store.records import Claim
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import (
    LATER,
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
UNROUTED = Route("", "no pool has this label")


async def stamped(store: Store, number: int) -> Claim:
    claim = await claimed(store, number)
    assert await store.stamp(claim.handle, f"gh-{number}", NOW)
    return claim


async def claim_of(store: Store, number: int) -> Claim:
    found = await store.find_claim(f"uid-{number}")
    assert found is not None
    return found


async def test_an_excluded_account_gets_no_new_claim(store: Store) -> None:
    await enqueue(store, 1)
    await enqueue(store, 2, account="other")
    excluded = frozenset({"acme"})

    first = await store.claim(a_pod(1), "macos", NOW, excluded=excluded)
    second = await store.claim(a_pod(2), "macos", NOW, excluded=excluded)

    assert first is not None
    assert first.job_id == 2
    assert second is None
    # A claim that exists is found again, so that its Pod keeps its job.
    again = await store.claim(a_pod(1), "macos", NOW, excluded=frozenset({"other"}))
    assert again == first


async def test_only_one_of_many_requests_takes_over_a_stamp(store: Store) -> None:
    await enqueue(store, 1)
    claim = await stamped(store, 1)

    done = await asyncio.gather(
        *(store.restamp(claim.handle, "gh-1", f"gh-1-{number}", LATER) for number in range(8))
    )

    assert sum(done) == 1
    found = await claim_of(store, 1)
    assert found.runner_name == f"gh-1-{done.index(True)}"
    assert found.stamped_at == LATER


async def test_the_jit_config_of_a_replaced_runner_is_refused(store: Store) -> None:
    await enqueue(store, 1)
    claim = await stamped(store, 1)
    assert await store.restamp(claim.handle, "gh-1", "gh-1-again", LATER)

    assert not await store.mint(claim.handle, "gh-1", Secret("late"), 1, LATER)
    assert await store.mint(claim.handle, "gh-1-again", Secret("jit"), 2, LATER)
    assert (await claimed(store, 1)).jit == Secret("jit")


async def test_no_stamp_is_replaced_before_it_exists_or_after_the_jit_config(store: Store) -> None:
    await enqueue(store, 1, 2)
    early = await claimed(store, 1)
    late = await minted(store, 2)

    assert not await store.restamp(early.handle, "", "gh-new", NOW)
    assert not await store.restamp(late.handle, "gh-2", "gh-new", NOW)
    assert await store.release(early.handle, "test", NOW)
    assert not await store.restamp(early.handle, "", "gh-new", NOW)


async def test_a_runner_name_is_used_once_and_valid(store: Store) -> None:
    await enqueue(store, 1, 2)
    await stamped(store, 1)
    claim = await stamped(store, 2)

    with pytest.raises(Conflict, match="runner"):
        await store.restamp(claim.handle, "gh-2", "gh-1", NOW)
    with pytest.raises(BadRequest, match="runner name"):
        await store.restamp(claim.handle, "gh-2", "gh\n2", NOW)


@pytest.mark.parametrize("phase", [Phase.IN_PROGRESS, Phase.COMPLETED])
async def test_a_report_that_names_our_runner_proves_that_it_was_online(
    store: Store, phase: Phase
) -> None:
    await enqueue(store, 1)
    await minted(store, 1)

    await store.apply_report(a_report(1, phase, runner_name="gh-1"), POOL, LATER)

    found = await claim_of(store, 1)
    assert found.online_at == NOW + SECOND
    assert found.jit is None
    with pytest.raises(Gone, match="runner-1"):
        await store.claim(a_pod(1), "macos", LATER)


async def test_a_runner_is_not_online_before_its_jit_config_exists(store: Store) -> None:
    """GitHub's times are whole seconds and may be before the time at which the JIT config was stored."""
    await enqueue(store, 1)
    await minted(store, 1)

    early = a_report(1, Phase.IN_PROGRESS, runner_name="gh-1", at=NOW - 2 * SECOND)
    await store.apply_report(early, POOL, LATER)

    assert (await claim_of(store, 1)).online_at == NOW


async def test_a_runner_that_executes_the_job_of_another_is_online_too(store: Store) -> None:
    await enqueue(store, 1, 2)
    await minted(store, 1)
    await minted(store, 2)

    await store.apply_report(a_report(2, Phase.IN_PROGRESS, runner_name="gh-1"), POOL, LATER)

    assert (await claim_of(store, 1)).online_at is not None
    assert (await claim_of(store, 2)).online_at is None
    assert (await claimed(store, 2)).jit == Secret("jit-2")


async def test_cancelling_a_job_without_a_runner_frees_its_pod(store: Store) -> None:
    await enqueue(store, 1, 2)
    await stamped(store, 1)

    assert await store.cancel(1, NOW)

    assert (await claimed(store, 1)).job_id == 2


async def test_live_claims_are_those_whose_job_or_pod_has_not_ended(store: Store) -> None:
    await enqueue(store, 1, 2, 3, 4)
    claims = [await minted(store, number) for number in (1, 2, 3, 4)]
    await store.apply_report(a_report(1, Phase.COMPLETED, runner_name="gh-1"), POOL, NOW)
    await store.pod_stopped("runner-2", NOW, NOW)
    await store.apply_report(a_report(3, Phase.COMPLETED, runner_name="gh-3"), POOL, NOW)
    await store.pod_stopped("runner-3", NOW, NOW)

    live = await store.live_claims()

    assert [each.claim.handle for each in live] == [claims[i].handle for i in (0, 1, 3)]
    assert [each.job.id for each in live if each.job] == [1, 2, 4]
    assert [each.job.state for each in live if each.job] == [
        State.COMPLETED,
        State.CLAIMED,
        State.CLAIMED,
    ]
    rest = await store.live_claims(after_handle=live[0].claim.handle, limit=1)
    assert rest == live[1:2]
    assert await store.live_claims(after_handle=live[-1].claim.handle) == ()


async def test_the_end_of_a_claim_does_not_queue_its_job(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)
    foreign = a_report(1, Phase.IN_PROGRESS, runner_name="not-ours")
    await store.apply_report(foreign, POOL, NOW)

    assert await store.end_claim(claim.handle, "Pod is gone", LATER)
    assert not await store.end_claim(claim.handle, "again", LATER)

    found = await claim_of(store, 1)
    assert (found.outcome, found.finished_at, found.ended_at) == ("Pod is gone", LATER, LATER)
    assert found.jit is None
    assert await state_of(store, 1) == State.RUNNING
    assert await store.live_claims() == ()


async def test_the_end_of_a_claim_keeps_the_outcome_of_its_job(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)
    await store.apply_report(a_report(1, Phase.COMPLETED, runner_name="gh-1"), POOL, NOW)

    assert await store.end_claim(claim.handle, "Pod is gone", LATER)

    found = await claim_of(store, 1)
    assert (found.outcome, found.finished_at, found.ended_at) == ("success", NOW, LATER)


async def test_a_job_that_has_not_started_does_not_lose_its_claim(store: Store) -> None:
    await enqueue(store, 1)
    claim = await minted(store, 1)

    assert not await store.end_claim(claim.handle, "Pod is gone", LATER)
    assert not await store.end_claim(404, "unknown", LATER)

    assert await store.release(claim.handle, "Pod is gone", LATER)
    assert await state_of(store, 1) == State.QUEUED


async def test_the_end_of_a_claim_wakes_jobs_that_waited_for_the_limit(store: Store) -> None:
    policy = Policy(limits={"acme": 1})
    await enqueue(store, 1, 2)
    claim = await minted(store, 1)
    await store.apply_report(a_report(1, Phase.IN_PROGRESS, runner_name="not-ours"), POOL, NOW)

    with store.wakeups.waiting("macos") as waiter:
        assert await store.claim(a_pod(2), "macos", NOW, policy=policy) is None
        waiter.reset()
        assert await store.end_claim(claim.handle, "Pod is gone", NOW)
        await asyncio.wait_for(waiter.wait(), 10)

    assert (await claimed(store, 2, policy=policy)).job_id == 2


@pytest.mark.parametrize("by_report", [False, True])
async def test_the_release_of_a_claim_does_not_queue_a_job_that_runs_elsewhere(
    store: Store, by_report: bool
) -> None:
    await enqueue(store, 1)
    claim = await claimed(store, 1)
    await store.apply_report(a_report(1, Phase.IN_PROGRESS, runner_name="not-ours"), POOL, NOW)

    if by_report:
        await store.pod_stopped("runner-1", NOW, NOW)
    else:
        assert await store.release(claim.handle, "Pod is gone", NOW)

    found = await store.timeline(1)
    assert (found.job.state, found.job.facts.runner_name) == (State.RUNNING, "not-ours")
    assert found.claims[0].ended_at == NOW


async def test_a_release_wakes_jobs_of_other_pools_that_waited_for_the_limit(store: Store) -> None:
    policy = Policy(limits={"acme": 1})
    await enqueue(store, 1)
    await store.apply_report(a_report(2), Route("other"), NOW)
    claim = await minted(store, 1)

    with store.wakeups.waiting("other") as waiter:
        assert await store.claim(a_pod(2), "other", NOW, policy=policy) is None
        waiter.reset()
        assert await store.release(claim.handle, "Pod is gone", NOW)
        await asyncio.wait_for(waiter.wait(), 10)

    assert await store.claim(a_pod(2), "other", NOW, policy=policy) is not None


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.IN_PROGRESS])
async def test_a_person_requeues_a_held_job_once(store: Store, phase: Phase) -> None:
    await enqueue(store, 1)
    await minted(store, 1)
    await store.apply_report(
        a_report(1, phase, runner_name="gh-1" if phase > Phase.QUEUED else ""), POOL, NOW
    )

    done = await asyncio.gather(*(store.requeue(1, LATER) for _ in range(4)))

    assert sorted(done) == [False] * 3 + [True]
    assert await state_of(store, 1) == State.QUEUED
    assert (await claim_of(store, 1)).outcome == "requeued"
    assert (await claimed(store, 2)).job_id == 1
    with pytest.raises(Gone):
        await store.claim(a_pod(1), "macos", NOW)


async def test_a_person_requeues_a_job_that_another_runner_has(store: Store) -> None:
    await store.apply_report(a_report(1, Phase.IN_PROGRESS, runner_name="other"), POOL, NOW)

    assert await store.requeue(1, NOW)

    assert (await claimed(store, 1)).job_id == 1


async def test_jobs_that_no_runner_has_are_not_requeued(store: Store) -> None:
    await store.apply_report(a_report(1, Phase.WAITING), POOL, NOW)
    await enqueue(store, 2)
    await store.apply_report(a_report(3, Phase.COMPLETED), POOL, NOW)

    done = [await store.requeue(job_id, NOW) for job_id in (1, 2, 3, 404)]

    assert done == [False] * 4
    assert await state_of(store, 3) == State.COMPLETED


async def test_stale_jobs_are_in_a_state_and_unchanged_since_a_time(store: Store) -> None:
    await enqueue(store, 1, 2, 3)
    await claimed(store, 1)
    await store.apply_report(a_report(4, Phase.COMPLETED), POOL, NOW)
    await store.apply_report(a_report(5), POOL, LATER)
    states = [State.QUEUED, State.COMPLETED]

    async def ids(**page: int) -> list[int]:
        return [job.id for job in await store.stale_jobs(states, LATER, **page)]

    assert await ids() == [2, 3]
    assert await ids(after_id=2) == [3]
    assert await ids(limit=1) == [2]
    assert await store.stale_jobs([State.CLAIMED], NOW) == ()
    assert await store.stale_jobs([], LATER) == ()


async def test_a_touched_job_is_not_stale_unless_it_ended(store: Store) -> None:
    await enqueue(store, 1)
    await store.apply_report(a_report(2, Phase.COMPLETED), POOL, NOW)

    await store.touch_job(1, LATER)
    await store.touch_job(2, LATER)

    assert await store.stale_jobs([State.QUEUED], LATER) == ()
    assert (await store.timeline(1)).job.updated_at == LATER
    assert (await store.timeline(2)).job.updated_at == NOW


async def test_the_newest_claim_of_a_pod_name_is_found(store: Store) -> None:
    await enqueue(store, 1)
    first = await claimed(store, 1)
    assert await store.release(first.handle, "test", NOW)
    second = await claimed(store, 1)

    found = await store.claim_of_pod_name("runner-1")

    assert found is not None
    assert found.handle == second.handle
    assert await store.claim_of_pod_name("unknown") is None
