"""A controller that is killed before or after any of its writes during a roll: its successor continues as if nothing had happened."""

from __future__ import annotations

import asyncio

import pytest

from bramley.api.coordination import Lease, LeaseSpec
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from tests import virtual_time
from tests.scenarios.runners.crashes import CASES, checkpoints, roll
from tests.scenarios.runners.world import (
    IMAGES,
    NAMESPACE,
    NEW,
    OLD,
    RunningController,
    World,
    a_world,
)

# Every so many checkpoints; all of them are tried by `make soak`.
_STEPS = {"4-hosts": 7, "4-hosts-no-dispatch": 13, "8-hosts": 23, "4-hosts-elected": 17}


@pytest.mark.parametrize("name", CASES)
def test_roll_survives_the_death_of_the_controller_at_some_writes(name: str) -> None:
    for kill_at in range(_STEPS[name] // 2, checkpoints(name) + 1, _STEPS[name]):
        virtual_time.run(roll(CASES[name], kill_at))


async def test_leader_that_lost_its_lease_without_noticing_changes_nothing() -> None:
    async with a_world() as world:
        first = world.start_controller("a")
        await world.create_pool()
        await world.until_settled(OLD)
        await world.patch({"image": NEW})
        await world.until(lambda pool: bool(pool.status.draining))

        # Its requests hang from now on, as those of a process that is suspended.
        world.checkpoints.kill_at = world.checkpoints.count + 1
        world.start_controller("b")
        await asyncio.sleep(60)
        await first.kill()

        pool = await world.until_rolled(NEW)
        assert pool.status.controller_epoch == 2
        assert len(await world.alive()) == 4


async def test_new_leader_fences_all_pools_of_a_fleet_before_it_acts_on_one() -> None:
    async with a_world(FleetSettings(hosts=8, on_disk=(OLD,))) as world:
        first = world.start_controller("a")
        for name in ("one", "two"):
            await world.create_pool(name, replicas=4)
        for name in ("one", "two"):
            await world.until_settled(OLD, name=name)
        await first.kill()
        for name in ("one", "two"):
            await world.patch({"image": NEW, "replicas": 3}, name)
        before = len(world.checkpoints.writes)

        world.start_controller("b")
        for name in ("one", "two"):
            await world.until_settled(NEW, name=name)

        paths = [write.split()[1] for write in world.checkpoints.writes[before:]]
        actions = [number for number, path in enumerate(paths) if "/runnerpools/" not in path]
        assert {path.split("/")[-2] for path in paths[: actions[0]]} == {"one", "two"}


async def _led_three_times(world: World) -> RunningController:
    """Let three controllers lead in turn, so that the epoch of the pool is 3; return the last one."""
    for identity in ("a", "b"):
        controller = world.start_controller(identity)
        await controller.manager.leading.wait()
        await controller.stop()
    controller = world.start_controller("c")
    await world.create_pool()
    pool = await world.until_settled(OLD)
    assert pool.status.controller_epoch == 3
    return controller


async def _lease(world: World) -> LeaseSpec:
    return (await world.kube.get(Lease, "runners", namespace=NAMESPACE)).spec


async def test_lease_that_was_deleted_between_two_leaders_freezes_no_pool() -> None:
    async with a_world() as world:
        first = await _led_three_times(world)
        await first.kill()
        await world.kube.delete(Lease, "runners", namespace=NAMESPACE)

        world.start_controller("d")
        await world.patch({"image": NEW})
        pool = await world.until_rolled(NEW)

        assert pool.status.controller_epoch == (await _lease(world)).lease_transitions == 4


async def test_older_leader_gives_up_when_its_deleted_lease_has_another_holder() -> None:
    """The lease of a leader is deleted: until its deadline it still considers itself the leader, beside the next one."""
    async with a_world() as world:
        first = await _led_three_times(world)
        await world.kube.delete(Lease, "runners", namespace=NAMESPACE)
        world.start_controller("d")
        await world.patch({"image": NEW})
        await asyncio.sleep(5)

        assert first.task.done()
        pool = await world.until_rolled(NEW)
        lease = await _lease(world)
        assert pool.status.controller_epoch == lease.lease_transitions == 4
        assert lease.holder_identity == "d"


async def test_pods_that_ended_while_no_controller_ran_are_not_created_again() -> None:
    """A new leader first takes over the pool; until it has noticed the ends, nothing may remove the Pods that show them."""
    async with a_world(images={**IMAGES, NEW: ImageModel(exits_after=1)}) as world:
        first = world.start_controller("a")
        await world.create_pool(image=NEW)
        while len(await world.pods()) < 4:
            await asyncio.sleep(0.1)
        await first.kill()
        await asyncio.sleep(120)

        world.start_controller("b")
        # The lease of the first one must end.
        await asyncio.sleep(20)

        assert [slot.failures for slot in (await world.pool()).status.slots] == [1] * 4
        await asyncio.sleep(300)
