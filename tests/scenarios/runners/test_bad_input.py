"""Pools that cannot be what their spec demands: a condition names the reason, and no runner and no job is lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.meta import Condition, ObjectMeta, to_wire
from bramley.api.names import conditions as types
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import Canary, Rollout, RunnerPool, Staging
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import Job
from tests import virtual_time
from tests.scenarios.runners.invariants import image_of, is_ready
from tests.scenarios.runners.world import GB, IMAGES, NEW, NEWER, OLD, World, a_world


def _condition(pool: RunnerPool, type: str) -> Condition:
    found = conditions.find(pool.status.conditions, type)
    assert found is not None, pool.status.conditions
    return found


async def _started(world: World, hosts: int = 4, **spec: Any) -> None:
    world.start_controller()
    await world.create_pool(**spec)
    await world.until_settled(OLD)
    assert len(await world.pods()) == hosts


async def test_image_that_does_not_exist_changes_no_runner() -> None:
    images = {**IMAGES, NEW: ImageModel(exists=False)}
    async with a_world(images=images) as world:
        await _started(world)
        before = {pod.uid for pod in await world.pods()}

        await world.patch({"image": NEW})
        await asyncio.sleep(3600)

        condition = _condition(await world.pool(), types.STAGING_BLOCKED)
        assert (condition.status, condition.reason) == ("True", "PullFailed")
        assert NEW in condition.message
        assert {pod.uid for pod in await world.pods() if is_ready(pod)} == before
        # Corrected by the next image.
        await world.patch({"image": NEWER})
        pool = await world.until_rolled(NEWER)
        assert _condition(pool, types.STAGING_BLOCKED).status == "False"


async def test_image_that_does_not_exist_is_rejected_without_staging() -> None:
    images = {**IMAGES, NEW: ImageModel(exists=False)}
    async with a_world(images=images) as world:
        world.invariants.allows_cold = True
        await _started(world, rollout=Rollout(staging=Staging(mode="Disabled")))
        world.invariants.start_recording()

        await world.patch({"image": NEW})
        pool = await world.until(lambda pool: pool.status.roll_phase == "Rejected")

        assert "registry has no image" in _condition(pool, types.ROLLED_OUT).message
        await world.until_settled(OLD)
        assert world.invariants.fewest_ready["macos"] >= 3


async def test_fleet_without_hosts_is_named() -> None:
    async with a_world() as world:
        world.start_controller()
        await world.create_pool(fleet_selector="elsewhere")
        await asyncio.sleep(600)

        pool = await world.pool()
        condition = _condition(pool, types.CAPACITY_SHORT)
        assert (condition.status, condition.reason) == ("True", "NoHosts")
        assert "elsewhere" in condition.message
        assert await world.pods() == []


async def test_node_that_pods_cannot_run_on_adds_no_place() -> None:
    async with a_world() as world:
        node = await world.node("mac-1")
        found = {**node.metadata.labels, labels.RUNTIME: "other"}
        other = Node(metadata=ObjectMeta(name="other", labels=found), status=node.status)
        await world.kube.create_wire(Node.resource, to_wire(other))
        world.start_controller()
        await world.create_pool(replicas=5)
        await world.until_ready(4)
        await asyncio.sleep(60)

        assert len(await world.pods()) == 4
        pool = await world.pool()
        assert _condition(pool, types.CAPACITY_SHORT).reason == "SlotsTaken"
        # Its owner corrects the label.
        patch = {"metadata": {"labels": {labels.RUNTIME: labels.RUNTIME_TART}}}
        await world.kube.merge_patch(Node, "other", patch)
        await asyncio.sleep(5)
        assert len(await world.pods()) == 5


async def test_images_are_staged_while_pods_cannot_be_created() -> None:
    async with a_world(FleetSettings(hosts=5, on_disk=(OLD,))) as world:
        await _started(world, replicas=4)

        world.checkpoints.refused = ("POST", "/pods")
        await world.patch({"replicas": 5, "image": NEW})
        pool = await world.until(
            lambda pool: pool.status.target_image == NEW and pool.status.staged_hosts > 0,
            within=60,
        )

        condition = _condition(pool, types.PODS_FAILING)
        assert (condition.status, condition.reason) == ("True", "CreateFailed")
        assert "not now" in condition.message
        # Tried again without a change of any object.
        world.checkpoints.refused = None
        await world.until_settled(NEW)


async def test_canary_is_judged_in_time_while_pods_cannot_be_created() -> None:
    images = {**IMAGES, NEW: ImageModel(size_bytes=4 * GB, is_ready=False)}
    async with a_world(FleetSettings(hosts=5, on_disk=(OLD,)), images) as world:
        rollout = Rollout(canary=Canary(timeout_seconds=120))
        await _started(world, replicas=4, rollout=rollout)
        await world.patch({"image": NEW})
        while NEW not in {image_of(pod) for pod in await world.alive()}:
            await asyncio.sleep(1)
        began = virtual_time.clock().now()

        world.checkpoints.refused = ("POST", "/pods")
        await world.patch({"replicas": 5})
        await world.until(lambda pool: pool.status.roll_phase == "Rejected")

        assert virtual_time.clock().now() - began < timedelta(seconds=180)


async def test_replicas_beyond_the_slots_create_no_pending_pods() -> None:
    async with a_world() as world:
        world.start_controller()
        await world.create_pool(replicas=9)
        pool = await world.until_ready(4)
        await asyncio.sleep(3600)

        assert len(await world.pods()) == 4
        pool = await world.pool()
        assert _condition(pool, types.CAPACITY_SHORT).reason == "SlotsTaken"
        assert world.metric("tuist_runners_pool_warm_deficit_replicas") == 5
        # A roll works all the same.
        await world.patch({"image": NEW})
        await world.until(
            lambda pool: pool.status.last_good_image == NEW and pool.status.ready_replicas == 4
        )


async def test_image_that_changes_twice_during_a_roll_ends_at_the_last_one() -> None:
    async with a_world() as world:
        await _started(world)
        world.invariants.start_recording()
        await world.patch({"image": NEW})
        await world.until(lambda pool: pool.status.roll_phase == "Rolling")

        await world.patch({"image": NEWER})
        await world.until(lambda pool: pool.status.target_image == NEWER)
        await asyncio.sleep(20)
        await world.patch({"image": OLD})

        await world.until_settled(OLD)
        # A runner that was booting the second image is stale and not Ready when the third one comes.
        assert world.invariants.fewest_ready["macos"] >= 2


async def test_host_with_a_full_disk_is_drained_first_and_pulls_cold() -> None:
    settings = FleetSettings(hosts=4, on_disk=(OLD,), disk_bytes=100 * GB)
    async with a_world(settings) as world:
        await _started(world)
        world.hosts.fill_disk("mac-2")
        world.invariants.allows_cold = True
        world.invariants.start_recording()

        await world.patch({"image": NEW})
        await world.until_rolled(NEW)

        await world.until_settled(NEW)
        assert world.invariants.most_in_flight["macos"] == 1
        assert world.invariants.fewest_ready["macos"] >= 3


async def test_host_with_a_full_disk_blocks_a_roll_that_requires_staging() -> None:
    settings = FleetSettings(hosts=4, on_disk=(OLD,), disk_bytes=100 * GB)
    async with a_world(settings) as world:
        await _started(world, rollout=Rollout(staging=Staging(mode="Required")))
        world.hosts.fill_disk("mac-2")

        await world.patch({"image": NEW})
        await asyncio.sleep(3600)

        condition = _condition(await world.pool(), types.STAGING_BLOCKED)
        assert (condition.status, condition.reason) == ("True", "NoRoom")
        assert "mac-2" in condition.message
        images = {pod.spec.node_name: image_of(pod) for pod in await world.alive()}
        assert images == dict.fromkeys(("mac-1", "mac-3", "mac-4"), NEW) | {"mac-2": OLD}


@pytest.mark.parametrize(
    ("changes", "reason"), [({"os": "linux"}, "UnsupportedOS"), ({"name": "x" * 64}, "NameTooLong")]
)
async def test_pool_that_is_not_supported_is_left_alone(
    changes: dict[str, str], reason: str
) -> None:
    name = changes.get("name", "macos")
    async with a_world() as world:
        world.start_controller()
        await world.create_pool(**{"dispatch_label": "macos", **changes})
        await asyncio.sleep(60)

        pool = await world.pool(name)
        assert _condition(pool, types.SUPPORTED).reason == reason
        assert pool.metadata.finalizers == []
        assert (await world.kube.list(Pod)).items == []


async def test_job_outlives_a_roll_whose_image_does_not_exist() -> None:
    images = {**IMAGES, NEW: ImageModel(exists=False)}
    async with a_world(images=images) as world:
        await _started(world)
        assert world.dispatch is not None
        job = Job("macos", timedelta(hours=1), virtual_time.clock().now())
        world.dispatch.enqueue(job)
        await asyncio.sleep(30)

        await world.patch({"image": NEW})
        await asyncio.sleep(2 * 3600)

        assert (job.lost, job.finished_at is not None, job.image) == (0, True, OLD)
        # The runner of the job was replaced, by the image that exists.
        assert {image_of(pod) for pod in await world.alive()} == {OLD}
        assert len(await world.alive()) == 4
