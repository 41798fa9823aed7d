"""Pools of the existing controller are taken over without a restart of a single Pod."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.jobs import Job
from tests import virtual_time
from tests.scenarios.runners.existing_objects import (
    an_existing_pod,
    an_existing_pool,
    patch_labels,
)
from tests.scenarios.runners.invariants import image_of, is_claimed
from tests.scenarios.runners.world import NEW, OLD, World, a_world

DIGITS = ("0a1b2c3d", "11111111", "deadbeef", "cafe0123", "99887766", "5f5f5f5f")


async def _existing(world: World, replicas: int, *, images: tuple[str, ...] = ()) -> list[Pod]:
    pool = await an_existing_pool(world, replicas)
    used = images or (OLD,) * replicas
    return [
        await an_existing_pod(world, pool, digits, image)
        for digits, image in zip(DIGITS, used, strict=False)
    ]


async def _uids(world: World) -> set[str]:
    return {pod.uid for pod in await world.alive()}


async def test_pods_of_the_existing_controller_are_kept() -> None:
    async with a_world(FleetSettings(hosts=5, on_disk=(OLD,))) as world:
        assert world.dispatch is not None
        # One host less than Pods: the last Pod stays Pending.
        await _existing(world, 6)
        await asyncio.sleep(60)
        job = Job("macos", timedelta(hours=1), virtual_time.clock().now())
        world.dispatch.enqueue(job)
        await asyncio.sleep(10)
        before = await _uids(world)

        world.start_controller()
        # Less than the timeout of a Pod that has no host.
        await asyncio.sleep(240)

        assert await _uids(world) == before
        assert not any("pods" in write for write in world.checkpoints.writes)
        pool = await world.pool()
        assert (pool.status.last_good_image, pool.status.target_image) == (OLD, OLD)
        assert (pool.status.ready_replicas, pool.status.busy_replicas) == (5, 1)


async def test_finished_pod_of_the_existing_controller_is_reaped_and_replaced() -> None:
    async with a_world() as world:
        pods = await _existing(world, 4)
        await asyncio.sleep(60)
        await patch_labels(world, pods[0], {labels.OPERATOR_DRAIN: labels.TRUE})
        await asyncio.sleep(30)
        others = await _uids(world)
        assert len(others) == 3

        world.start_controller()
        await world.until_settled(OLD)

        assert others < await _uids(world)
        assert pods[0].name not in {each.name for each in await world.accounts()}


async def test_roll_replaces_the_pods_of_the_existing_controller() -> None:
    async with a_world() as world:
        await _existing(world, 4)
        await asyncio.sleep(60)
        world.start_controller()
        await asyncio.sleep(60)

        await world.patch({"image": NEW})
        await world.until_rolled(NEW)

        await world.until_settled(NEW)
        assert world.invariants.most_in_flight["macos"] == 1


async def test_roll_of_the_existing_controller_is_continued() -> None:
    settings = FleetSettings(hosts=6, on_disk=(OLD, NEW))
    async with a_world(settings) as world:
        pods = await _existing(world, 6, images=(NEW, NEW, OLD, OLD, OLD, OLD))
        await asyncio.sleep(60)
        await patch_labels(world, pods[2], {labels.RUNNER_POOL_OWNER: "acme"})
        # The cap is two Pods.
        await world.patch({"image": NEW, "rollout": {"maxConcurrentPercent": 34}})
        for pod in pods[3:5]:
            await patch_labels(world, pod, {labels.DRAIN_ELIGIBLE: labels.TRUE})

        world.start_controller()
        await world.until(lambda pool: pool.status.stale_replicas == 1)

        assert world.invariants.most_in_flight["macos"] == 2
        busy = [pod for pod in await world.alive() if is_claimed(pod)]
        assert [(pod.name, image_of(pod)) for pod in busy] == [(pods[2].name, OLD)]
        kept = {pod.name for pod in await world.alive()}
        assert {pods[0].name, pods[1].name} < kept
