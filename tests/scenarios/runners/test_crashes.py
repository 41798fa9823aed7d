"""A controller that is killed before or after any of its writes during a roll: its successor continues as if nothing had happened."""

from __future__ import annotations

import asyncio

import pytest

from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from tests import virtual_time
from tests.scenarios.runners.crashes import CASES, checkpoints, roll
from tests.scenarios.runners.world import IMAGES, NEW, OLD, a_world

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
