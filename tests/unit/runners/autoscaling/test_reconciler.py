from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest
from prometheus_client import CollectorRegistry

from bramley.api.names import events
from bramley.api.runner_pool import RunnerPool
from tests.scenarios.world import NAMESPACE, running
from tests.unit.runners.autoscaling.fleets import (
    FleetWorld,
    a_fleet,
    an_autoscaled_fleet,
    signals,
)

TICK = 6.0
COOLDOWN = 300.0
METRICS = (
    "target_replicas",
    "allocated_replicas",
    "warm_deficit_replicas",
    "min_warm_floor_replicas",
    "claimed_jobs",
    "occupied_runners",
    "queued_jobs",
)


def metrics_of(fleet: FleetWorld, pool: str) -> list[float | None]:
    return [fleet.metric(name, pool) for name in METRICS]


async def test_queued_jobs_scale_the_pool_up_within_a_tick() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=1, queued=3)
        await fleet.pool("a", autoscaling={"minWarmPoolFloor": 1})
        await asyncio.sleep(TICK)

        status = await fleet.status("a")
        assert await fleet.replicas("a") == [5]
        assert (status.replicas, status.target) == (5, 5)
        assert status.reason == events.QUEUED_JOBS
        assert (status.claimed, status.queued) == (1, 3)
        assert (await fleet.get("a")).status.last_scale_down_at is None
        [event] = await fleet.events()
        assert event.startswith("Scaled from 0 to 5 runners: 1 claimed, 3 queued")


async def test_first_scale_down_waits_until_demand_was_low_for_the_cooldown() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=8)
        await fleet.pool("a")
        await asyncio.sleep(TICK)
        fleet.signals.answers["a"] = signals(claimed=2)
        await asyncio.sleep(COOLDOWN - TICK)

        cooling = await fleet.status("a")
        assert await fleet.replicas("a") == [8]
        assert cooling.reason == events.COOLING_DOWN
        assert cooling.low_demand_since is not None

        await asyncio.sleep(4 * TICK)

        pool = await fleet.get("a")
        assert pool.spec.replicas == 2
        assert pool.status.last_scale_down_at is not None
        assert (await fleet.status("a")).low_demand_since is None


async def test_demand_that_returns_for_a_moment_prevents_the_scale_down() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        await fleet.pool("a")
        for _ in range(6):
            for claimed, seconds in ((8, 2 * TICK), (1, COOLDOWN - 5 * TICK)):
                fleet.signals.answers["a"] = signals(claimed=claimed)
                await asyncio.sleep(seconds)

        assert await fleet.replicas("a") == [8]


async def test_restarted_autoscaler_starts_the_cooldown_again() -> None:
    async with a_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=1)
        await fleet.pool("a", replicas=8)
        async with running(fleet.manager()):
            await asyncio.sleep(COOLDOWN - 2 * TICK)
        restarted = dataclasses.replace(fleet, registry=CollectorRegistry())
        async with running(restarted.manager()):
            await asyncio.sleep(COOLDOWN - 2 * TICK)
            assert await fleet.replicas("a") == [8]
            await asyncio.sleep(4 * TICK)
            assert await fleet.replicas("a") == [1]


async def test_last_answer_is_used_while_the_endpoint_is_away_and_then_replicas_stay() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=4)
        await fleet.pool("a")
        await asyncio.sleep(TICK)
        del fleet.signals.answers["a"]
        await fleet.patch("a", {"replicas": 1})
        await asyncio.sleep(TICK)
        assert await fleet.replicas("a") == [4]
        assert (await fleet.status("a")).reason == events.OCCUPIED_RUNNERS

        await asyncio.sleep(130)
        await fleet.patch("a", {"replicas": 7})
        await asyncio.sleep(2 * COOLDOWN)

        status = await fleet.status("a")
        assert await fleet.replicas("a") == [7]
        assert (status.reason, status.claimed) == (events.SIGNALS_UNAVAILABLE, 4)

        fleet.signals.answers["a"] = signals(claimed=9)
        await asyncio.sleep(TICK)
        assert await fleet.replicas("a") == [9]


async def test_pool_that_never_got_signals_keeps_its_replicas() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        await fleet.pool("a", replicas=6)
        await asyncio.sleep(2 * COOLDOWN)

        assert await fleet.replicas("a") == [6]
        assert (await fleet.status("a")).reason == events.SIGNALS_UNAVAILABLE


async def test_pools_of_a_fleet_share_its_slots_without_leaving_one_unused() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        for name in "abc":
            fleet.signals.answers[name] = signals(p95_concurrent_last_hour=9)
            await fleet.pool(name)
        await asyncio.sleep(2 * COOLDOWN + 4 * TICK)

        assert sorted(await fleet.replicas("a", "b", "c")) == [3, 3, 4]
        assert (await fleet.status("b")).reason == events.FLEET_FULL


async def test_sum_of_all_pools_never_exceeds_the_slots_except_for_load() -> None:
    """Demand changes at random; each pool is scaled by its own reconcile."""
    async with an_autoscaled_fleet(hosts=5) as fleet:
        demands = random.Random(7)
        for name in "abc":
            fleet.signals.answers[name] = signals()
            await fleet.pool(name, autoscaling={"scaleDownCooldownSeconds": 20})
        for _ in range(60):
            load = {name: demands.randint(0, 3) for name in "abc"}
            p95 = demands.randint(0, 9)
            for name in "abc":
                fleet.signals.answers[name] = signals(
                    claimed=load[name], p95_concurrent_last_hour=p95
                )
            # Two ticks: a pool that gives way does so in its own reconcile.
            await asyncio.sleep(12)
            assert sum(await fleet.replicas("a", "b", "c")) <= 10


async def test_pools_of_a_fleet_apply_the_same_pass() -> None:
    """If each pool decided by itself, the second one would get a slot, and lose it at the next tick."""
    async with a_fleet() as fleet:
        await fleet.hosts(1, pods=1)
        for name in ("a", "b"):
            fleet.signals.answers[name] = signals()
            await fleet.pool(name, replicas=2)
        async with running(fleet.manager()):
            await asyncio.sleep(2 * TICK)
            scaled = [message.partition(" runners")[0] for message in await fleet.events()]

    assert sorted(scaled) == ["Scaled from 2 to 0", "Scaled from 2 to 1"]


async def test_idle_runners_give_way_to_queued_jobs_of_another_pool() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers |= {"idle": signals(), "busy": signals()}
        await fleet.pool("idle", autoscaling={"minWarmPoolFloor": 10})
        await fleet.pool("busy")
        await asyncio.sleep(TICK)
        assert await fleet.replicas("idle", "busy") == [10, 0]

        fleet.signals.answers["busy"] = signals(queued=4)
        await asyncio.sleep(2 * TICK)

        assert await fleet.replicas("idle", "busy") == [6, 4]
        assert fleet.metric("warm_deficit_replicas", "idle") == 4


async def test_pools_that_are_not_autoscaled_keep_their_slots() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(p95_concurrent_last_hour=20)
        await fleet.pool("fixed", replicas=7, autoscaling={"enabled": False})
        await fleet.pool("other-fleet", replicas=7, fleetSelector="other")
        await fleet.pool("a")
        await asyncio.sleep(TICK)

        assert await fleet.replicas("fixed", "a") == [7, 3]


async def test_fleet_without_a_visible_host_keeps_its_own_targets() -> None:
    async with an_autoscaled_fleet() as fleet:
        fleet.signals.answers["a"] = signals(claimed=3, p95_concurrent_last_hour=5)
        await fleet.pool("a", replicas=6, autoscaling={"minWarmPoolFloor": 1})
        await asyncio.sleep(2 * COOLDOWN)

        assert await fleet.replicas("a") == [6]
        assert (await fleet.status("a")).reason == events.PERCENTILE


async def test_host_that_restarts_costs_no_warm_runner() -> None:
    async with an_autoscaled_fleet(hosts=3) as fleet:
        fleet.signals.answers["a"] = signals(p95_concurrent_last_hour=6)
        await fleet.pool("a")
        await asyncio.sleep(TICK)
        await fleet.set_ready("mac-0", ready=False)
        await asyncio.sleep(240)
        assert await fleet.replicas("a") == [6]

        await asyncio.sleep(60 + TICK)
        assert await fleet.replicas("a") == [4]


async def test_siblings_share_each_answer() -> None:
    async with a_fleet(hosts=5) as fleet:
        names = [f"p{number}" for number in range(8)]
        for name in names:
            fleet.signals.answers[name] = signals()
            fleet.signals.delays[name] = 0.5
            await fleet.pool(name)
        async with running(fleet.manager()):
            await asyncio.sleep(58)

    # One request per pool and tick, not one per pair of pools.
    assert all(fleet.signals.calls.count(name) <= 14 for name in names)
    assert all(fleet.signals.calls.count(name) >= 8 for name in names)


async def test_endpoint_that_hangs_for_one_pool_delays_no_other_fleet() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        for number in range(20):
            name = f"slow-{number}"
            fleet.signals.answers[name], fleet.signals.delays[name] = signals(), 3600
            await fleet.pool(name, replicas=3, fleetSelector=name)
        fleet.signals.answers["fast"] = signals(queued=2)
        await fleet.pool("fast")
        await asyncio.sleep(1)

        assert await fleet.replicas("fast") == [2]
        await asyncio.sleep(60)
        assert await fleet.replicas("slow-7") == [3]
        assert (await fleet.status("slow-7")).reason == events.SIGNALS_UNAVAILABLE


async def test_decision_on_an_older_spec_is_not_written() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"], fleet.signals.delays["a"] = signals(queued=9), 2
        await fleet.pool("a")
        await asyncio.sleep(1)
        await fleet.patch("a", {"autoscaling": {"maxReplicas": 3}})
        await asyncio.sleep(2 * TICK)

        [event] = await fleet.events()
        assert event.startswith("Scaled from 0 to 3 runners")


async def test_autoscaler_at_rest_writes_nothing() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        for name in ("a", "b", "away"):
            await fleet.pool(name, autoscaling={"minWarmPoolFloor": 1}, replicas=9)
        fleet.signals.answers |= {"a": signals(claimed=2), "b": signals(withheld=3)}
        await asyncio.sleep(3 * COOLDOWN)
        revision = fleet.world.api.store.revision

        await asyncio.sleep(3600)

        assert fleet.world.api.store.revision == revision


@pytest.mark.parametrize(
    "given",
    [
        {"autoscaling": {"enabled": False}},
        {"autoscaling": {"maxReplicas": 0}},
        {"os": "linux"},
    ],
)
async def test_pool_that_is_not_autoscaled_is_not_touched(given: dict[str, object]) -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(queued=9)
        before = await fleet.pool("a", replicas=2, **given)
        await asyncio.sleep(60)

        assert await fleet.get("a") == before
        assert fleet.signals.calls == []
        assert fleet.metric("target_replicas", "a") is None


async def test_opting_out_clears_explanation_and_metrics_and_keeps_the_replicas() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=4)
        await fleet.pool("a")
        await asyncio.sleep(TICK)
        assert fleet.metric("target_replicas", "a") == 4

        await fleet.patch("a", {"autoscaling": {"enabled": False}})
        await asyncio.sleep(TICK)

        pool = await fleet.get("a")
        assert (pool.spec.replicas, pool.status.autoscaling) == (4, None)
        assert fleet.metric("target_replicas", "a") is None


async def test_metrics_of_a_deleted_pool_are_dropped() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=4)
        await fleet.pool("a")
        await asyncio.sleep(TICK)

        await fleet.world.kube.delete(RunnerPool, "a", namespace=NAMESPACE)
        await asyncio.sleep(TICK)

        assert fleet.metric("claimed_jobs", "a") is None
        calls = len(fleet.signals.calls)
        await asyncio.sleep(60)
        assert len(fleet.signals.calls) == calls


async def test_metrics_show_demand_and_explicit_zeros() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=4, queued=2)
        await fleet.pool("a", autoscaling={"minWarmPoolFloor": 1})
        await asyncio.sleep(TICK)
        found = metrics_of(fleet, "a")
        fleet.signals.answers["a"] = signals()
        await asyncio.sleep(TICK)

        assert found == [7, 7, 0, 1, 4, 4, 2]
        assert metrics_of(fleet, "a") == [1, 1, 0, 1, 0, 0, 0]


async def test_other_fields_of_the_status_stay_as_they_are() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        await fleet.pool("a")
        await fleet.world.kube.merge_patch(
            RunnerPool,
            "a",
            {"status": {"targetImage": "img:1", "slots": [{"counter": 3}]}},
            namespace=NAMESPACE,
            subresource="status",
        )
        fleet.signals.answers["a"] = signals(claimed=4)
        await asyncio.sleep(2 * TICK)

        status = (await fleet.get("a")).status
        assert (status.target_image, status.slots[0].counter) == ("img:1", 3)
        assert status.autoscaling is not None


async def test_input_that_returns_to_zero_is_zero_in_the_status() -> None:
    async with an_autoscaled_fleet(hosts=5) as fleet:
        fleet.signals.answers["a"] = signals(claimed=2, withheld=5)
        await fleet.pool("a")
        await asyncio.sleep(TICK)
        fleet.signals.answers["a"] = signals()
        await asyncio.sleep(TICK)

        status = await fleet.status("a")
        assert (status.claimed, status.withheld) == (0, 0)
