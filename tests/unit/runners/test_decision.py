from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.api import names
from bramley.api.runner_pool import Canary, RunnerPool, Staging, StagingMode
from bramley.api.runner_pool_status import HostFailures
from bramley.runners.decision import Decision, Inputs, PoolView, decide
from bramley.runners.hosts import Host
from bramley.runners.pods import RunnerPod
from tests.unit.example_counts import examples
from tests.unit.runners.builders import (
    NEW,
    NEWER,
    NOW,
    OLD,
    a_booting_pod,
    a_failed_pod,
    a_fleet,
    a_host,
    a_pod,
    a_pool,
    an_ended_pod,
    in_slots,
    reporting,
    seconds,
)
from tests.unit.runners.simulated_fleet import SimulatedFleet

seeds = st.integers(0, 2**32)
MODES: tuple[StagingMode, ...] = get_args(StagingMode)


def a_simulated_fleet(
    seed: int,
    *,
    hosts: int = 6,
    replicas: int = 6,
    pools: int = 1,
    percent: int = 20,
    staging: Staging | None = None,
    canary: Canary | None = None,
    slots: int = 1,
) -> SimulatedFleet:
    """Return a fleet whose pools have reached their size with the old image."""
    pool_names = [f"pool-{number}" for number in range(pools)]
    fleet = SimulatedFleet(
        random.Random(seed),
        {
            name: a_pool(name, replicas=replicas, percent=percent, staging=staging, canary=canary)
            for name in pool_names
        },
        {
            f"h{n}": a_host(
                f"h{n}", OLD, pods=slots, cpu_milli=8000 * slots, memory_mb=14336 * slots
            )
            for n in range(hosts)
        },
    )
    settle(fleet, jobs=0)
    return fleet


def settle(fleet: SimulatedFleet, *, steps: int = 200, jobs: float = 0.2) -> None:
    """Decide and let everything work until no pool rolls."""
    for _ in range(steps):
        for name in fleet.pools:
            fleet.decide(name)
        fleet.live(0.8, jobs=fleet.rng.random() < jobs)
        if all(is_settled(fleet, pool) for pool in fleet.pools.values()):
            return
    raise AssertionError(f"not settled: {[p.status for p in fleet.pools.values()]}")


def is_settled(fleet: SimulatedFleet, pool: RunnerPool) -> bool:
    alive = [pod for pod in fleet.of(pool.name).values() if pod.is_alive]
    is_ready = all(pod.is_ready and pod.image == pool.status.target_image for pod in alive)
    status = pool.status
    is_over = (
        status.roll_phase in {"Idle", "Rejected"} and status.last_good_image == status.target_image
    )
    return is_ready and is_over and len(alive) == pool.spec.replicas


FEW = settings(max_examples=examples(10))


@FEW
@given(
    seed=seeds,
    mode=st.sampled_from(MODES),
    percent=st.sampled_from([1, 20, 34, 50, 100]),
    slots=st.integers(1, 2),
)
def test_roll_of_a_busy_pool_ends_within_its_cap(
    seed: int, mode: StagingMode, percent: int, slots: int
) -> None:
    fleet = a_simulated_fleet(
        seed, percent=percent, staging=Staging(mode=mode), slots=slots, hosts=6 // slots
    )

    fleet.change("pool-0", image=NEW)
    settle(fleet)

    assert fleet.pools["pool-0"].status.last_good_image == NEW
    assert fleet.most_in_flight <= max(1, percent * 6 // 100)


@FEW
@given(seed=seeds, mode=st.sampled_from(MODES), count=st.integers(0, 2))
def test_every_number_of_canaries_leads_to_the_end_of_a_roll(
    seed: int, mode: StagingMode, count: int
) -> None:
    fleet = a_simulated_fleet(
        seed,
        hosts=4,
        replicas=4,
        percent=50,
        staging=Staging(mode=mode),
        canary=Canary(count=count),
    )

    fleet.change("pool-0", image=NEW)
    settle(fleet)

    assert fleet.pools["pool-0"].status.last_good_image == NEW


@FEW
@given(seed=seeds)
def test_pools_that_share_hosts_roll_within_the_cap_of_the_fleet(seed: int) -> None:
    fleet = a_simulated_fleet(seed, hosts=6, replicas=2, pools=3, percent=34)

    for name in fleet.pools:
        fleet.change(name, image=NEW)
    settle(fleet)

    assert {pool.status.last_good_image for pool in fleet.pools.values()} == {NEW}


@FEW
@given(seed=seeds, has_dispatch=st.booleans(), mode=st.sampled_from(MODES))
def test_nothing_is_lost_whatever_happens_during_a_roll(
    seed: int, has_dispatch: bool, mode: StagingMode
) -> None:
    """Images, sizes, pauses, hosts and the health of the image change at random; at the end all is as desired."""
    fleet = a_simulated_fleet(seed, hosts=5, replicas=4, percent=30, staging=Staging(mode=mode))
    fleet.has_dispatch = has_dispatch
    rng = fleet.rng

    for _ in range(20):
        disturb(fleet, "pool-0")
        fleet.decide("pool-0")
        fleet.live(0.6, is_good=rng.random() < 0.8)
    fleet.annotate("pool-0")
    fleet.hosts = {
        name: replace(each, unusable="", is_draining=False) for name, each in fleet.hosts.items()
    }
    fleet.change("pool-0", replicas=4, image=NEWER)
    settle(fleet)

    alive = [pod for pod in fleet.of("pool-0").values() if pod.is_alive]
    assert len(alive) == 4


def disturb(fleet: SimulatedFleet, pool: str) -> None:
    rng, notes = fleet.rng, names.annotations
    match rng.randrange(12):
        case 0:
            fleet.change(pool, image=rng.choice([OLD, NEW, NEWER]))
        case 1:
            fleet.change(pool, replicas=rng.randrange(7))
        case 2:
            fleet.annotate(pool, **{notes.ROLLOUT_PAUSED: "true"})
        case 3:
            note = rng.choice([notes.ROLLOUT_UNDO, notes.ROLLOUT_PROMOTE])
            fleet.annotate(pool, **{note: fleet.pools[pool].spec.image})
        case 4:
            fleet.annotate(pool)
        case 5:
            host = rng.choice(list(fleet.hosts.values()))
            reason = "unschedulable" if host.is_usable else ""
            fleet.hosts[host.name] = replace(host, unusable=reason, is_draining=bool(reason))
        case _:
            pods = fleet.of(pool)
            for pod in list(pods.values())[: rng.randrange(2)]:
                pods[pod.name] = replace(pod, is_ready=False)


def decided(
    pool: RunnerPool, pods: Sequence[RunnerPod], hosts: Sequence[Host], **inputs: Any
) -> Decision:
    view = PoolView(pool, tuple(pods))
    return decide(view, a_fleet(view, hosts=hosts), Inputs(NOW, **inputs))


def images(decision: Decision) -> list[str]:
    return sorted(each.pending.image for each in decision.plan.create)


def a_rolling_pool(replicas: int = 4, **given: Any) -> RunnerPool:
    status = {"target_image": NEW, "last_good_image": OLD, "roll_started_at": NOW - seconds(60)}
    return a_pool(image=NEW, replicas=replicas, **{**status, **given})


def a_host_each(pods: Sequence[RunnerPod], *on_disk: str) -> list[Host]:
    return [a_host(pod.node, *on_disk) for pod in pods]


def test_untested_image_is_not_given_to_every_pod_of_a_busy_pool() -> None:
    pods, slots = in_slots(
        [
            *(an_ended_pod(f"ended-{n}") for n in range(10)),
            *(a_pod(f"busy-{n}", is_claimed=True) for n in range(10)),
        ]
    )
    pool = a_rolling_pool(20, percent=50, slots=slots)

    assert images(decided(pool, pods, a_host_each(pods, OLD, NEW))) == [OLD] * 9 + [NEW]


def test_one_pod_is_marked_for_the_canary_however_large_the_cap_is() -> None:
    pods, slots = in_slots([a_pod(f"p{n}") for n in range(20)])
    pool = a_rolling_pool(20, percent=50, slots=slots)

    decision = decided(pool, pods, a_host_each(pods, OLD, NEW))

    assert (decision.rollout.phase, len(decision.plan.mark)) == ("Canary", 1)


def test_slow_canary_gets_a_second_one_beside_it() -> None:
    slow = a_pod("slow", NEW, started_at=NOW - seconds(900))
    pods, slots = in_slots([slow, *(a_pod(f"p{n}") for n in range(3))])
    pool = a_rolling_pool(4, slots=slots, boot_seconds=[30] * 20)

    assert len(decided(pool, pods, a_host_each(pods, OLD, NEW)).plan.mark) == 1


@pytest.mark.parametrize("mode", MODES)
def test_pod_is_marked_only_on_a_host_that_has_the_image(mode: StagingMode) -> None:
    pods, slots = in_slots([a_pod("a"), a_pod("b")])
    hosts = [a_host("host-a", OLD), a_host("host-b", OLD, NEW)]
    pool = a_rolling_pool(2, slots=slots, staging=Staging(mode=mode))

    marked = [pod.name for pod in decided(pool, pods, hosts).plan.mark]

    assert marked == (["a"] if mode == "Disabled" else ["b"])


@pytest.mark.parametrize("mode", MODES)
def test_host_without_room_is_drained_and_counted_with_best_effort(mode: StagingMode) -> None:
    pods, slots = in_slots([a_pod("a"), a_pod("b")])
    hosts = [
        reporting(a_host(f"host-{name}", OLD, requested=(NEW, OLD)), NEW) for name in ("a", "b")
    ]
    pool = a_rolling_pool(2, slots=slots, staging=Staging(mode=mode))

    decision = decided(pool, pods, hosts)

    assert len(decision.plan.mark) == (0 if mode == "Required" else 1)


def test_rolls_of_other_pools_use_the_room_of_the_fleet() -> None:
    pods, slots = in_slots([a_pod("a")])
    view = PoolView(a_rolling_pool(1, slots=slots, canary_passed_image=NEW), pods)
    drained = a_pod("x", is_marked=True)
    other = PoolView(
        a_pool("other", replicas=1, image=NEW, target_image=NEW, last_good_image=OLD), (drained,)
    )
    hosts = a_host_each((*pods, drained), OLD, NEW)

    alone = decide(view, a_fleet(view, hosts=hosts), Inputs(NOW))
    shared = decide(view, a_fleet(view, other, hosts=hosts), Inputs(NOW))

    assert (len(alone.plan.mark), len(shared.plan.mark)) == (1, 0)


def test_no_pod_is_created_without_a_place() -> None:
    decision = decided(a_pool(replicas=9), [], [a_host("h0"), a_host("h1", unusable="not_ready")])

    assert (len(decision.plan.create), decision.plan.missing, decision.share) == (1, 8, 1)


def test_pools_share_the_places_of_their_fleet() -> None:
    views = [PoolView(a_pool(name, replicas=9)) for name in ("a", "b")]
    fleet = a_fleet(*views, hosts=[a_host(f"h{n}") for n in range(4)])

    assert [len(decide(view, fleet, Inputs(NOW)).plan.create) for view in views] == [2, 2]


def test_no_pod_is_created_for_a_place_that_another_pool_still_uses() -> None:
    busy = [a_pod(f"p{n}", node=f"h{n}", is_claimed=True) for n in range(4)]
    large, small = PoolView(a_pool("a", replicas=4), tuple(busy)), PoolView(a_pool("b"))
    fleet = a_fleet(large, small, hosts=[a_host(f"h{n}") for n in range(4)])

    decision = decide(small, fleet, Inputs(NOW))

    assert (decision.share, len(decision.plan.create)) == (2, 0)


@pytest.mark.parametrize(("idle", "given_up"), [(4, 2), (1, 1), (0, 0)])
def test_pool_gives_up_idle_pods_beyond_its_share_for_a_sibling_that_lacks_places(
    idle: int, given_up: int
) -> None:
    pods = [a_pod(f"p{n}", node=f"h{n}", is_claimed=n >= idle) for n in range(4)]
    large, small = PoolView(a_pool("a", replicas=4), tuple(pods)), PoolView(a_pool("b"))
    fleet = a_fleet(large, small, hosts=[a_host(f"h{n}") for n in range(4)])

    plan = decide(large, fleet, Inputs(NOW)).plan

    assert len(plan.delete) == given_up
    assert plan.create == ()


def test_pool_keeps_idle_pods_beyond_its_share_while_places_are_free() -> None:
    pods = tuple(a_pod(f"p{n}", node=f"h{n}") for n in range(4))
    large, small = PoolView(a_pool("a", replicas=4), pods), PoolView(a_pool("b", replicas=2))
    fleet = a_fleet(large, small, hosts=[a_host(f"h{n}") for n in range(6)])

    assert decide(large, fleet, Inputs(NOW)).plan.delete == ()


@pytest.mark.parametrize(("unready", "replaced"), [(4, 4), (5, 0), (10, 0)])
def test_pods_are_not_replaced_while_many_hosts_are_unreachable(
    unready: int, replaced: int
) -> None:
    pods = [a_pod(f"p{n}", node=f"h{n}", is_ready=n >= unready) for n in range(10)]
    hosts = [a_host(f"h{n}", OLD, unusable="not_ready" if n < unready else "") for n in range(10)]
    waiting = {pod.name: NOW - seconds(3600) for pod in pods}

    decision = decided(a_pool(replicas=10), pods, hosts, waiting_since=waiting)

    assert len(decision.plan.delete) == replaced


def test_pool_that_is_being_deleted_takes_no_places() -> None:
    views = [PoolView(a_pool("a", replicas=9)), PoolView(a_pool("b", replicas=9, deleting=True))]
    fleet = a_fleet(*views, hosts=[a_host(f"h{n}") for n in range(4)])

    assert len(decide(views[0], fleet, Inputs(NOW)).plan.create) == 4


def test_host_on_which_pods_keep_failing_is_avoided_unless_there_are_few() -> None:
    failures = [HostFailures(node="h0", count=3, last_at=NOW - seconds(60))]
    pool = a_pool(replicas=1, host_failures=failures)
    hosts = [a_host(f"h{n}") for n in range(3)]

    assert decided(pool, [], hosts).avoid == ("h0",)
    assert decided(pool, [], hosts[:2]).avoid == ()
    assert decided(pool, [a_pod("a", node="h0")], hosts).avoid == ()


def test_failures_are_counted_by_host() -> None:
    pods, slots = in_slots([a_failed_pod("a", OLD, node="h0")])
    pool = a_pool(replicas=1, slots=slots)

    decision = decided(pool, pods, [a_host("h0")])

    assert decision.host_failures == (HostFailures(node="h0", count=1, last_at=NOW),)


def test_image_of_a_pool_that_never_worked_is_replaced_without_a_cap() -> None:
    pods, slots = in_slots([a_booting_pod(f"p{n}", OLD) for n in range(9)])
    pool = a_pool(image=NEW, replicas=9, slots=slots, target_image=OLD)

    decision = decided(pool, pods, a_host_each(pods, NEW))

    assert len(decision.plan.mark) == 9
