"""Run a lifecycle with a crash of the agent at any checkpoint that the lifecycle passes."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bramley.sim.mac.agent_process import AgentProcess
from tests import virtual_time
from tests.scenarios.agent_life.lifecycles import LIFECYCLES, Lifecycle, Point
from tests.scenarios.agent_life.world import World, a_world
from tests.unit import example_counts

# About what launchd waits before it starts the agent again.
RESTART_DELAY = 1.0
# What makes two lifecycles differ begins a few points before their checkpoints do.
POINTS_BEFORE_FORK = 4
# Under hypothesis' profile `fast` only one in so many crashes is run.
FAST_STRIDE = 60


@dataclass(frozen=True, slots=True)
class Crash:
    """Where the agent is killed; with the whole Mac, or once more when the next agent has passed so many points."""

    at: Point
    is_reboot: bool = False
    again_after: int | None = None


@dataclass(slots=True)
class CrashInjector:
    """Counts the checkpoints, runs the actions of the lifecycle at them, and kills the agent at one of them."""

    world: World
    lifecycle: Lifecycle
    crash: Crash | None
    passed: list[Point] = field(default_factory=list)
    killed: list[AgentProcess] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _since: int = 0
    _has_killed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_checkpoint(self, checkpoint: str) -> None:
        """Record a checkpoint of the agent that runs now."""
        point = Point(checkpoint, self._counts[checkpoint])
        self._counts[checkpoint] += 1
        self.passed.append(point)
        if point in self.lifecycle.on:
            self.world.group.create_task(_act(self.lifecycle, point, self.world))
        if self.crash is not None and self._is_due(self.crash, point):
            self._kill()

    async def restart_agents(self) -> None:
        """Start the next agent after each crash, as launchd does."""
        while True:
            await self._has_killed.wait()
            self._has_killed.clear()
            if self.world.side is self.killed[-1]:
                is_reboot = self.crash is not None and self.crash.is_reboot
                await (self.world.reboot() if is_reboot else self.world.kill())
                await asyncio.sleep(RESTART_DELAY)
            self.world.ensure_started()

    def _is_due(self, crash: Crash, point: Point) -> bool:
        if not self.killed:
            return point == crash.at
        self._since += 1
        return len(self.killed) == 1 and self._since == crash.again_after

    def _kill(self) -> None:
        if self.world.side is not None:
            self._since = 0
            self.killed.append(self.world.side)
            self.world.side.kill()
            self._has_killed.set()


async def _act(lifecycle: Lifecycle, point: Point, world: World) -> None:
    await lifecycle.on[point](world)


async def run(lifecycle: Lifecycle, crash: Crash | None = None) -> list[Point]:
    """Run a lifecycle until nothing is left of its Pods; return the points it passed."""
    with tempfile.TemporaryDirectory(prefix="bramley-life-") as folder:
        return await _run(lifecycle, Path(folder), crash)


async def _run(lifecycle: Lifecycle, folder: Path, crash: Crash | None) -> list[Point]:
    async with a_world(folder) as world:
        await lifecycle.set_up(world)
        injector = CrashInjector(world, lifecycle, crash)
        world.on_checkpoint = injector.on_checkpoint
        restarts = world.group.create_task(injector.restart_agents())
        world.ensure_started()
        await lifecycle.run(world)
        await world.until_rest()
        restarts.cancel()
        assert crash is None or injector.killed, f"the lifecycle does not pass {crash}"
        return injector.passed


def run_each(
    name: str, crashes: Iterable[Crash], record_property: Callable[[str, object], None]
) -> None:
    """Run a lifecycle once for each crash."""
    selected = list(crashes)[:: FAST_STRIDE if example_counts.share() < 1 else 1]
    for crash in selected:
        try:
            virtual_time.run(run(LIFECYCLES[name], crash))
        except (AssertionError, ExceptionGroup) as error:
            error.add_note(f"{name}: {crash}")
            raise
    record_property("kill points", len(selected))


@functools.cache
def points_of(name: str) -> list[Point]:
    """Return all points of a lifecycle."""
    return virtual_time.run(run(LIFECYCLES[name]))


def own_points(name: str) -> list[Point]:
    """Return the points of a lifecycle that none before it has."""
    up_to = list(LIFECYCLES)[: list(LIFECYCLES).index(name) + 1]
    return _own(name, {each: points_of(each) for each in up_to})


def _own(name: str, points_by_name: Mapping[str, Sequence[Point]]) -> list[Point]:
    # At a point that an earlier lifecycle has too, the agent would be killed in a known state. Checkpoints of the
    # background work, such as heartbeats, are left to the first lifecycle.
    points, before = points_by_name[name], list(points_by_name)[: list(points_by_name).index(name)]
    if not before:
        return list(points)
    lifecycle = LIFECYCLES[name]
    visible = max(_common_prefix(points, points_by_name[each]) for each in before)
    visible -= POINTS_BEFORE_FORK
    forks = (at for at, point in enumerate(points) if point.checkpoint == lifecycle.forks_at)
    fork = max(min(visible, next(forks, visible)), 0)
    found = [point for point in points[fork:] if not is_background(point.checkpoint)]
    return found[:: lifecycle.every]


def _common_prefix(one: Sequence[Point], other: Sequence[Point]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def is_background(checkpoint: str) -> bool:
    """Return whether the agent passes this checkpoint periodically, in any state of its Pods."""
    return any(part in checkpoint for part in BACKGROUND)


BACKGROUND = ("/leases/", "/nodes/", "/events", "tart ip", "tart list", "tart --version", "sudo")
