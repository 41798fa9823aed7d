from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta

import pytest

from bramley.api.coordination import Lease
from bramley.base import errors
from bramley.runtime.keys import Key
from bramley.runtime.leader_election import LeaderElectionSettings
from tests.unit.runtime.candidates import LEASE, Candidate, Skewed, contest, leading, the_lease
from tests.unit.runtime.fake_api import FakeApi
from tests.unit.runtime.informer_harness import until, value


async def test_one_of_two_candidates_leads_and_renews() -> None:
    server = FakeApi()
    first, second = Candidate(server, "first"), Candidate(server, "second")
    async with contest(first, second):
        for _ in range(300):
            await asyncio.sleep(1)
            assert first.acts + second.acts == 1

    spec = the_lease(server).spec
    assert spec.lease_duration_seconds == 15
    assert spec.lease_transitions == 1


async def test_dead_leader_is_replaced_after_its_lease_and_not_before() -> None:
    server = FakeApi()
    first, second = Candidate(server, "first"), Candidate(server, "second")
    async with contest(first) as [task]:
        await asyncio.sleep(30)
        async with contest(second):
            await asyncio.sleep(30)
            task.cancel()
            died = asyncio.get_running_loop().time()
            await until(lambda: second.acts, within=20)

            assert 12 < asyncio.get_running_loop().time() - died < 20
    assert second.leadership is not None
    assert second.leadership.epoch == 2


@pytest.mark.parametrize("seed", range(10))
async def test_released_lease_is_taken_within_two_seconds(seed: int) -> None:
    server = FakeApi()
    first, second = Candidate(server, f"first-{seed}"), Candidate(server, f"second-{seed}")
    async with contest(first) as [task]:
        await until(lambda: first.acts)
        async with contest(second):
            await asyncio.sleep(30 + seed / 7)
            task.cancel()
            assert first.leadership is not None
            await first.election.release(first.leadership)
            assert not first.acts
            assert the_lease(server).spec.holder_identity is None

            async with asyncio.timeout(2):
                await until(lambda: second.acts)
    assert second.leadership is not None
    assert second.leadership.epoch == first.leadership.epoch + 1


async def test_paused_leader_finds_out_before_it_acts() -> None:
    server = FakeApi()
    first, second = Candidate(server, "first"), Candidate(server, "second")
    async with contest(first, second) as tasks:
        await asyncio.sleep(10)
        leader, other = (first, second) if first.acts else (second, first)
        # Stopped: none of its code runs, and its clock continues.
        tasks[0 if leader is first else 1].cancel()
        await asyncio.sleep(60)
        assert other.acts

        assert leader.leadership is not None
        with pytest.raises(errors.LeaseLost, match="epoch 1"):
            leader.leadership.check()
        assert other.leadership is not None
        assert other.leadership.epoch > leader.leadership.epoch


async def test_returning_leader_does_not_take_its_lease_back() -> None:
    server = FakeApi()
    first, second = Candidate(server, "first"), Candidate(server, "second")
    async with contest(first) as [task]:
        await until(lambda: first.acts)
        task.cancel()
        async with contest(second):
            await until(lambda: second.acts, within=20)
            assert first.leadership is not None
            with pytest.raises(errors.LeaseLost):
                await first.election.renew_until_lost(first.leadership)
            await asyncio.sleep(30)

            assert the_lease(server).spec.holder_identity == "second"


@pytest.mark.parametrize("latency", [0.0, 1.0, 4.0])
async def test_slow_server_does_not_cost_the_lease(latency: float) -> None:
    async with leading() as (server, leader, _):
        server.latency = latency
        for _ in range(120):
            await asyncio.sleep(1)
            assert leader.acts


async def test_one_renewal_that_hangs_does_not_cost_the_lease() -> None:
    async with leading() as (server, leader, _):
        server.latency = 60
        await asyncio.sleep(4)
        server.latency = 0
        for _ in range(60):
            await asyncio.sleep(1)
            assert leader.acts


@pytest.mark.parametrize("failure", ["unavailable", "latency"])
async def test_leader_cut_off_steps_down_at_ten_seconds_and_not_earlier(failure: str) -> None:
    async with leading() as (server, leader, _):
        await asyncio.sleep(60)
        renewed = server.calls.count("patch")
        await until(lambda: server.calls.count("patch") > renewed, every=0.001)
        began = asyncio.get_running_loop().time()
        server.unavailable, server.latency = failure == "unavailable", 8.0 * (failure == "latency")
        while leader.acts:
            await asyncio.sleep(0.01)
        stopped = asyncio.get_running_loop().time()

        assert stopped - began == pytest.approx(10, abs=0.1)
        await asyncio.sleep(0.1)
        assert leader.lost_at == pytest.approx(stopped, abs=0.1)
        assert value(leader.metrics, "bramley_leader", lease=LEASE) == 0


async def test_renewal_whose_answer_was_lost_is_no_loss() -> None:
    server = FakeApi()
    leader = Candidate(server, "leader")
    patch = server.merge_patch

    async def lose_the_answer(*args: object, **kwargs: object) -> object:
        await patch(*args, **kwargs)  # type: ignore[arg-type]
        raise errors.TimedOut("no answer")

    async with contest(leader):
        await until(lambda: leader.acts)
        server.merge_patch = lose_the_answer  # type: ignore[method-assign, assignment]
        await asyncio.sleep(3)
        server.merge_patch = patch  # type: ignore[method-assign]
        for _ in range(60):
            await asyncio.sleep(1)
            assert leader.acts


async def test_stolen_lease_is_lost_at_the_next_renewal() -> None:
    async with leading() as (server, leader, _):
        thief = {"spec": {"holderIdentity": "thief", "leaseTransitions": 9}}
        await server.merge_patch(Lease, LEASE, thief, namespace="ns")
        await asyncio.sleep(3)

        assert not leader.acts
        assert leader.lost_at is not None
        assert the_lease(server).spec.holder_identity == "thief"


async def test_clocks_a_day_apart_change_nothing() -> None:
    server = FakeApi()
    late = Candidate(server, "late", Skewed(off=timedelta(days=-1)))
    early = Candidate(server, "early", Skewed(off=timedelta(days=1)))
    async with contest(late, early):
        for _ in range(600):
            await asyncio.sleep(0.5)
            assert late.acts + early.acts <= 1
        assert late.acts + early.acts == 1
    assert the_lease(server).spec.lease_transitions == 1


@pytest.mark.parametrize("rate", [0.7, 1.0, 1.45])
async def test_clock_rates_within_the_tolerance_never_make_two_leaders(rate: float) -> None:
    """Client-go's rule: rates may differ by lease / renew deadline, which is 1.5."""
    server = FakeApi()
    first, second = Candidate(server, "first"), Candidate(server, "second", Skewed(rate))
    async with contest(first, second) as tasks:
        await asyncio.sleep(30)
        leader, other = (first, second) if first.acts else (second, first)
        tasks[0 if leader is first else 1].cancel()
        for _ in range(4000):
            await asyncio.sleep(0.01)
            assert not (leader.acts and other.acts)

        assert other.acts


async def test_clock_beyond_the_tolerance_is_fenced_by_the_epoch() -> None:
    """A clock that runs twice as fast takes over while the old leader still considers itself the leader; only the epoch differs."""
    async with leading() as (server, leader, task):
        hasty = Candidate(server, "hasty", Skewed(2.0))
        async with contest(hasty):
            await asyncio.sleep(1)
            task.cancel()
            await until(lambda: hasty.acts, within=20)

            assert leader.leadership is not None
            assert hasty.leadership is not None
            assert hasty.leadership.epoch > leader.leadership.epoch


async def test_epoch_grows_with_every_take_over_also_after_the_lease_was_deleted() -> None:
    server, epochs = FakeApi(), []
    candidates = [Candidate(server, f"c{number}") for number in range(4)]
    for candidate in candidates:
        leadership = await candidate.election.acquire()
        epochs.append(leadership.epoch)
        await candidate.election.release(leadership)
    assert epochs == [1, 2, 3, 4]

    server.remove(Lease, Key("ns", LEASE))
    assert (await candidates[-1].election.acquire()).epoch == 5


async def test_epoch_of_a_new_lease_is_raised_above_one_that_was_stored() -> None:
    async with leading() as (server, leader, _):
        assert leader.leadership is not None
        await leader.election.raise_epoch(leader.leadership, 7)
        await asyncio.sleep(30)

        assert leader.acts
        assert leader.leadership.epoch == the_lease(server).spec.lease_transitions == 8
        assert value(leader.metrics, "bramley_leader_epoch", lease=LEASE) == 8


async def test_leaders_with_different_leases_do_not_raise_their_epochs_without_a_pause() -> None:
    async with leading() as (_, leader, _):
        assert leader.leadership is not None
        await leader.election.raise_epoch(leader.leadership, 7)

        with pytest.raises(errors.LeaseLost, match="another lease"):
            await leader.election.raise_epoch(leader.leadership, 9)
        await asyncio.sleep(60)
        await leader.election.raise_epoch(leader.leadership, 9)

        assert leader.leadership.epoch == 10


async def test_epoch_is_not_raised_by_a_process_that_lost_its_lease() -> None:
    async with leading() as (server, leader, task):
        task.cancel()
        later = {"spec": {"holderIdentity": "later", "leaseTransitions": 2}}
        await server.merge_patch(Lease, LEASE, later, namespace="ns")

        assert leader.leadership is not None
        leader.leadership.check()
        with pytest.raises(errors.LeaseLost, match="held by later"):
            await leader.election.raise_epoch(leader.leadership, 2)

        assert not leader.acts
        assert the_lease(server).spec.lease_transitions == 2


async def test_raised_epoch_whose_answer_was_lost_is_no_loss() -> None:
    async with leading() as (server, leader, _):
        patch = server.merge_patch

        async def lose_the_answer(*args: object, **kwargs: object) -> object:
            await patch(*args, **kwargs)  # type: ignore[arg-type]
            raise errors.TimedOut("no answer")

        assert leader.leadership is not None
        server.merge_patch = lose_the_answer  # type: ignore[method-assign, assignment]
        with pytest.raises(errors.TimedOut):
            await leader.election.raise_epoch(leader.leadership, 7)
        server.merge_patch = patch  # type: ignore[method-assign]
        await asyncio.sleep(30)
        assert leader.acts

        await leader.election.raise_epoch(leader.leadership, 7)

        assert leader.leadership.epoch == the_lease(server).spec.lease_transitions == 9


async def test_candidate_retries_while_the_server_is_unavailable() -> None:
    server = FakeApi()
    server.unavailable = True
    candidate = Candidate(server, "patient")
    async with contest(candidate):
        await asyncio.sleep(600)
        server.unavailable = False
        await until(lambda: candidate.acts, within=3)


async def test_release_after_the_loss_leaves_the_new_leader_alone() -> None:
    server = FakeApi()
    first, second = Candidate(server, "first"), Candidate(server, "second")
    async with contest(first) as [task]:
        await until(lambda: first.acts)
        task.cancel()
        async with contest(second):
            await until(lambda: second.acts, within=20)
            assert first.leadership is not None
            await first.election.release(first.leadership)

            assert the_lease(server).spec.holder_identity == "second"


async def test_release_succeeds_though_a_renewal_was_cut_off_that_arrived() -> None:
    server = FakeApi()
    leader = Candidate(server, "leader")
    patch, arrived = server.merge_patch, asyncio.Event()

    async def keep_the_answer(*args: object, **kwargs: object) -> object:
        await patch(*args, **kwargs)  # type: ignore[arg-type]
        arrived.set()
        return await asyncio.Future()

    async with contest(leader) as [task]:
        await until(lambda: leader.acts)
        server.merge_patch = keep_the_answer  # type: ignore[method-assign, assignment]
        await arrived.wait()
        task.cancel()
        server.merge_patch = patch  # type: ignore[method-assign]
        assert leader.leadership is not None
        await leader.election.release(leader.leadership)

    assert the_lease(server).spec.holder_identity is None


async def test_release_leaves_a_stolen_lease_alone() -> None:
    async with leading() as (server, leader, task):
        task.cancel()
        stolen = {"spec": {"holderIdentity": "thief"}}
        await server.merge_patch(Lease, LEASE, stolen, namespace="ns")
        assert leader.leadership is not None
        await leader.election.release(leader.leadership)

    assert the_lease(server).spec.holder_identity == "thief"


async def test_release_times_out_while_the_server_is_unavailable() -> None:
    async with leading() as (server, leader, task):
        task.cancel()
        server.latency = 1e6
        assert leader.leadership is not None
        async with asyncio.timeout(3):
            await leader.election.release(leader.leadership)


@pytest.mark.parametrize(("lease", "renew", "retry"), list(itertools.permutations([15, 10, 2]))[1:])
def test_times_out_of_order_are_refused(lease: int, renew: int, retry: int) -> None:
    with pytest.raises(errors.BadConfiguration):
        LeaderElectionSettings(
            "ns",
            LEASE,
            "me",
            lease=timedelta(seconds=lease),
            renew_deadline=timedelta(seconds=renew),
            retry=timedelta(seconds=retry),
        )
