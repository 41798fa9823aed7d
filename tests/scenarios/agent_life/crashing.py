"""Tells a life with a death of the agent in it, at any point that the life has."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bramley.sim.mac.agent_process import AgentProcess
from tests.scenarios.agent_life.lives import LIVES, Life, Point
from tests.scenarios.agent_life.world import World, a_world

# As launchd waits, or nearly so.
DOWN = 1.0
# What parts two lives is begun a few points before it shows.
BEFORE_PARTING = 4


@dataclass(frozen=True, slots=True)
class Death:
    """Where the agent dies; with the whole Mac, or once more when its successor has passed so many points."""

    at: Point
    is_reboot: bool = False
    again_after: int | None = None


@dataclass(slots=True)
class Fate:
    """Sees the moments go by, does what is to be done at them, and lets the agent die at one of them."""

    world: World
    life: Life
    death: Death | None
    passed: list[Point] = field(default_factory=list)
    dead: list[AgentProcess] = field(default_factory=list)
    _seen: Counter[str] = field(default_factory=Counter)
    _since: int = 0
    _struck: asyncio.Event = field(default_factory=asyncio.Event)

    def meet(self, moment: str) -> None:
        """Note a moment of the agent that lives now."""
        point = Point(moment, self._seen[moment])
        self._seen[moment] += 1
        self.passed.append(point)
        if point in self.life.on:
            self.world.group.create_task(_do(self.life, point, self.world))
        if self.death is not None and self._is_due(self.death, point):
            self._strike()

    async def reap(self) -> None:
        """Wait for deaths, and start the next agent as launchd does."""
        while True:
            await self._struck.wait()
            self._struck.clear()
            if self.world.side is self.dead[-1]:
                is_reboot = self.death is not None and self.death.is_reboot
                await (self.world.reboot() if is_reboot else self.world.kill())
                await asyncio.sleep(DOWN)
            self.world.ensure_started()

    def _is_due(self, death: Death, point: Point) -> bool:
        if not self.dead:
            return point == death.at
        self._since += 1
        return len(self.dead) == 1 and self._since == death.again_after

    def _strike(self) -> None:
        if self.world.side is not None:
            self._since = 0
            self.dead.append(self.world.side)
            self.world.side.kill()
            self._struck.set()


async def _do(life: Life, point: Point, world: World) -> None:
    await life.on[point](world)


async def tell(life: Life, death: Death | None = None) -> list[Point]:
    """Tell a life to its end and beyond, until nothing is left of it; return the points it had."""
    with tempfile.TemporaryDirectory(prefix="bramley-life-") as folder:
        return await _tell(life, Path(folder), death)


async def _tell(life: Life, folder: Path, death: Death | None) -> list[Point]:
    async with a_world(folder) as world:
        await life.set_up(world)
        fate = Fate(world, life, death)
        world.on_checkpoint = fate.meet
        undertaker = world.group.create_task(fate.reap())
        world.ensure_started()
        await life.tell(world)
        await world.until_rest()
        undertaker.cancel()
        assert death is None or fate.dead, f"it has no point {death}"
        return fate.passed


def own(told: str, whole: Mapping[str, Sequence[Point]]) -> list[Point]:
    """Return the points of a life that no life before it has in common: elsewhere the agent would die in a known state.

    What all lives have besides, as heartbeats, is left to the first one.
    """
    points, before = whole[told], list(whole)[: list(whole).index(told)]
    if not before:
        return list(points)
    shown = max(_in_common(points, whole[each]) for each in before) - BEFORE_PARTING
    parts_at = (at for at, point in enumerate(points) if point.moment == LIVES[told].parts_at)
    parting = max(min(shown, next(parts_at, shown)), 0)
    found = [point for point in points[parting:] if not is_background(point.moment)]
    return found[:: LIVES[told].every]


def _in_common(one: Sequence[Point], other: Sequence[Point]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, yours) in pairs if mine != yours), min(len(one), len(other)))


def is_background(moment: str) -> bool:
    """Tell whether the agent does this over and over, in whatever state its Pods are."""
    return any(part in moment for part in BACKGROUND)


BACKGROUND = (
    "/leases/",
    "/nodes/",
    "/events",
    "tart ip",
    "tart list",
    "tart --version",
    "sudo",
)
