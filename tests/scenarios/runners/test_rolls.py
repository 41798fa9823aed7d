"""Rolls of a modelled fleet: within the cap, without the loss of a job, with few writes, and with metrics that are right."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.api import conditions
from bramley.api.names import conditions as types
from bramley.api.names import metrics
from bramley.api.names.annotations import STAGE_IMAGES
from bramley.api.pod import LocalObjectReference
from bramley.api.runner_pool import Rollout, Staging
from bramley.api.staging import NO_ACCESS
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import delayed
from tests import virtual_time
from tests.scenarios.runners.invariants import image_of
from tests.scenarios.runners.world import GB, IMAGES, NEW, NEWER, OLD, World, a_world


@pytest.mark.parametrize("dispatch", [True, False])
async def test_roll_replaces_every_pod_within_the_cap(*, dispatch: bool) -> None:
    async with a_world(dispatch=dispatch) as world:
        await _started(world)

        await world.patch({"image": NEW})
        pool = await world.until_rolled(NEW)

        assert pool.status.previous_good_image == OLD
        assert {image_of(pod) for pod in await world.alive()} == {NEW}
        assert world.invariants.most_in_flight["macos"] == 1


async def _started(world: World, percent: int = 5) -> None:
    world.start_controller()
    await world.create_pool(rollout=Rollout(max_concurrent_percent=percent))
    await world.until_settled(OLD)
    world.invariants.start_recording()


@pytest.mark.parametrize("percent", [5, 10])
async def test_rolled_pod_takes_at_most_eight_writes(percent: int) -> None:
    async with a_world(FleetSettings(hosts=20, on_disk=(OLD,))) as world:
        await _started(world, percent)
        before = len(world.checkpoints.writes)

        await world.patch({"image": NEW})
        await world.until_rolled(NEW)
        await world.until_settled(NEW)

        writes = world.checkpoints.writes[before:]
        of_hosts = [write for write in writes if "/nodes/" in write]
        assert (len(writes) - len(of_hosts)) / 20 <= 8
        # The image is requested, and the old one given up.
        assert len(of_hosts) / 20 <= 2


async def test_pool_that_stops_staging_withdraws_its_requests() -> None:
    async with a_world() as world:
        await _started(world)
        await world.patch({"image": NEW})
        await world.until_rolled(NEW)
        assert NEW in (await world.node("mac-1")).metadata.annotations[STAGE_IMAGES]

        await world.patch({"rollout": {"staging": {"mode": "Disabled"}}})
        await asyncio.sleep(5)

        nodes = [await world.node(name) for name in world.hosts.hosts]
        assert not any(STAGE_IMAGES in node.metadata.annotations for node in nodes)


PRIVATE = {each: ImageModel(size_bytes=4 * GB, pull_secret="ghcr") for each in (OLD, NEW)}
SECRETS = [LocalObjectReference(name="ghcr")]


async def test_private_images_are_staged_with_the_pull_secrets_of_the_pool() -> None:
    # Only hosts with a Pod of the pool may read its Secret.
    settings = FleetSettings(hosts=8, on_disk=(OLD,))
    async with a_world(settings, {**IMAGES, **PRIVATE}) as world:
        world.start_controller()
        await world.create_pool("other", replicas=4, image=NEWER)
        await world.until_settled(NEWER, name="other")
        staged = Rollout(staging=Staging(max_concurrent=8))
        await world.create_pool(replicas=4, image_pull_secrets=SECRETS, rollout=staged)
        await world.until_settled(OLD)

        await world.patch({"image": NEW})
        pool = await world.until_rolled(NEW)

        await world.until_settled(NEW)
        assert pool.status.staged_hosts == 4


async def test_pull_secret_that_comes_with_its_image_is_used_by_the_new_pods() -> None:
    """No Pod refers to the Secret before the first one of the new image, so no host can stage it."""
    async with a_world(images={**IMAGES, NEW: PRIVATE[NEW]}) as world:
        await _started(world)
        world.invariants.allows_cold = True

        await world.patch({"image": NEW, "imagePullSecrets": [{"name": "ghcr"}]})
        pool = await world.until(lambda pool: pool.status.roll_phase == "Canary")
        blocked = conditions.find(pool.status.conditions, types.STAGING_BLOCKED)
        assert blocked is not None
        assert NO_ACCESS in blocked.message
        await world.until_rolled(NEW)

        await world.until_settled(NEW)
        assert world.invariants.most_in_flight["macos"] == 1


async def test_pool_at_rest_writes_nothing() -> None:
    async with a_world() as world:
        await _started(world)
        await asyncio.sleep(60)
        before = len(world.checkpoints.writes)

        await asyncio.sleep(600)

        assert world.checkpoints.writes[before:] == []


async def test_roll_with_jobs_loses_none_and_delays_none() -> None:
    settings = FleetSettings(hosts=8, on_disk=(OLD,), host_bytes_per_second=5e7)
    async with a_world(settings, has_signals=True) as world:
        await _started(world)
        source = world.jobs(per_hour=12, median=timedelta(minutes=6))
        await asyncio.sleep(600)

        await world.patch({"image": NEW})
        await world.until_rolled(NEW)
        await world.stop_jobs()
        await world.until_settled(NEW)

        now = virtual_time.clock().now()
        assert sum(job.lost for job in source.jobs) == 0
        assert delayed(source.jobs, beyond=timedelta(seconds=60), now=now) == []
        assert world.invariants.most_in_flight["macos"] == 1
        assert world.invariants.fewest_ready["macos"] >= 5


async def test_metrics_of_a_roll_are_right_whenever_the_controller_rests() -> None:
    # Faster pulls than boots, so that two Pods are in flight.
    settings = FleetSettings(hosts=8, on_disk=(OLD,), host_bytes_per_second=1e9)
    async with a_world(settings) as world:
        await _started(world, percent=25)
        rolling, stale = set(), set()
        await world.patch({"image": NEW})
        while (await world.pool()).status.last_good_image != NEW:
            # At no moment at which something else happens: the model and the controller act at multiples of a tenth.
            await asyncio.sleep(1.7137)
            count = world.invariants.count("macos")
            assert world.metric(metrics.POOL_ROLLING_PODS.name) == count.rolling
            assert world.metric(metrics.POOL_STALE_PODS.name) == count.stale
            assert world.metric(metrics.POOL_ROLL_CONCURRENCY_CAP.name) == 2
            rolling.add(count.rolling)
            stale.add(count.stale)

        assert rolling >= {0, 1, 2}
        assert stale >= {1, 8}


@pytest.mark.parametrize("delay", [0, 3])
async def test_pools_of_one_fleet_share_its_cap(delay: float) -> None:
    settings = FleetSettings(hosts=8, on_disk=(OLD,))
    async with a_world(settings) as world:
        world.start_controller(delay=delay)
        for name in ("one", "two"):
            await world.create_pool(name, replicas=4)
        for name in ("one", "two"):
            await world.until_settled(OLD, name=name)
        world.invariants.start_recording()

        for name in ("one", "two"):
            await world.patch({"image": NEW}, name)
        for name in ("one", "two"):
            await world.until_settled(NEW, name=name)

        assert world.invariants.most_in_flight == {"one": 1, "two": 1}
        # One per pool would be two: the cap of the fleet is one.
        assert world.invariants.most_of_fleet == 1


async def test_two_leaders_stay_within_the_cap() -> None:
    settings = FleetSettings(hosts=8, on_disk=(OLD,))
    async with a_world(settings) as world:
        world.start_controller(delay=3)
        await _started(world, percent=25)

        await world.patch({"image": NEW})
        await world.until_settled(NEW)

        assert world.invariants.most_in_flight["macos"] == 2
