"""Rolls during which the controller is killed before or after one of its writes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from bramley.api.runner_pool import Rollout
from bramley.sim.fleet.hosts import FleetSettings
from tests import virtual_time
from tests.scenarios.runners.world import NEW, OLD, World, a_world


@dataclass(frozen=True, slots=True)
class Case:
    """A roll: how many hosts, the percentage, and how the next controller becomes the leader."""

    hosts: int
    percent: int
    dispatch: bool = True
    election: bool = False


CASES = {
    "4-hosts": Case(4, 5),
    "4-hosts-no-dispatch": Case(4, 5, dispatch=False),
    "8-hosts": Case(8, 25),
    "4-hosts-elected": Case(4, 5, election=True),
}


async def roll(case: Case, kill_at: int | None) -> World:
    """Roll a pool; the controller is killed at a checkpoint of the roll, if one is given."""
    settings = FleetSettings(hosts=case.hosts, on_disk=(OLD,))
    async with a_world(settings, dispatch=case.dispatch) as world:
        world.start_controller("a" if case.election else "")
        await world.create_pool(rollout=Rollout(max_concurrent_percent=case.percent))
        await world.until_settled(OLD)

        world.checkpoints.count = 0
        world.checkpoints.kill_at = kill_at
        world.invariants.start_recording()
        await world.patch({"image": NEW})
        if kill_at is not None:
            await world.checkpoints.killed.wait()
            await world.controllers[0].kill()
            world.start_controller("b" if case.election else "")
        await world.until_rolled(NEW)
        await world.until_settled(NEW)
        cap = max(1, case.percent * case.hosts // 100)
        assert world.invariants.most_in_flight["macos"] == cap
        assert world.invariants.fewest_ready["macos"] >= case.hosts - cap
        return world


@functools.cache
def checkpoints(name: str) -> int:
    """Return how many checkpoints a roll has that is not disturbed."""
    world = virtual_time.run(roll(CASES[name], None))
    return world.checkpoints.count
