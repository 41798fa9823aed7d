"""A life of a few machines during which the manager is killed or paused at one of its calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tests import virtual_time
from tests.scenarios.machines.managers import Gate
from tests.scenarios.machines.world import World, a_world


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the first manager stops, and whether it continues after the second one has worked for some time."""

    at: int
    is_pause: bool = False


def live(stop: Stop | None, *, seed: int = 0) -> Gate:
    """Run the life; raise if a host is shared, lost, or not wiped."""
    return virtual_time.run(_live(stop, seed), seed=seed)


def cancelled_claim(stop_at: int | None, *, late: float) -> Gate:
    """Delete a machine whose manager is killed during the claim; the provider processes the last request much later."""
    return virtual_time.run(_cancelled_claim(stop_at, late))


async def _cancelled_claim(stop_at: int | None, late: float) -> Gate:
    async with a_world(servers=2, stale=0) as world:
        first = world.start("first", stop_at=stop_at, late=late)
        await world.create("a")
        if stop_at is None:
            await world.until("a")
            return first.gate
        await first.gate.stopped.wait()
        await world.stop(first)
        await world.delete("a")
        world.start("second")
        await world.until()
        await asyncio.sleep(3600)
        await world.check_at_rest()
        return first.gate


async def _live(stop: Stop | None, seed: int) -> Gate:
    async with a_world(servers=2, seed=seed) as world:
        first = world.start("first", stop_at=stop.at if stop else None)
        follower = world.group.create_task(_follow(world, stop))
        for name in ("a", "b"):
            await world.create(name)
        await world.until("a", "b")
        await world.delete("a")
        await world.create("c")
        await world.until("b", "c")
        await world.swap("b")
        await asyncio.sleep(30)
        await world.until("b", "c")
        await world.delete("b")
        await world.delete("c")
        await world.until()
        follower.cancel()
        if first.gate.is_stopped and stop is not None and stop.is_pause:
            first.gate.resume()
        # Sweeps remove what a paused manager has left behind.
        await asyncio.sleep(3600)
        await world.until()
        await world.check_at_rest()
        return first.gate


async def _follow(world: World, stop: Stop | None) -> None:
    [(first, _)] = world.managers
    await first.gate.stopped.wait()
    if stop is None or not stop.is_pause:
        await world.stop(first)
    world.start("second")
    if stop is not None and stop.is_pause:
        # While its successor begins, while it works, or long after.
        await asyncio.sleep((25, 400, 2500)[stop.at % 3])
        first.gate.resume()
