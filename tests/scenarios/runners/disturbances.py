"""One seeded run of a pool that is disturbed in many ways at once: controllers, caches, hosts, Pods, jobs and the spec.

The invariants hold at every write. When the disturbances stop, everything converges, and no job was lost except with its host.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from bramley.api import names
from bramley.api.core import Node
from bramley.api.runner_pool import Rollout, Staging, StagingMode
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.jobs import JobSource
from tests.scenarios.runners.invariants import is_alive
from tests.scenarios.runners.world import NEW, NEWER, OLD, World, a_world

Mode = Literal["two leaders", "replaced", "elected"]
MODES: tuple[Mode, ...] = ("two leaders", "replaced", "elected")
STAGING: tuple[StagingMode, ...] = ("BestEffort", "BestEffort", "Required", "Disabled")
_LEAST_PAUSE, _MOST_PAUSE = 2.0, 150.0


@dataclass(slots=True)
class Disturbance:
    """The disturbances of one seed."""

    world: World
    rng: random.Random
    mode: Mode
    delay: float
    started: int = 0
    images: list[str] = field(default_factory=lambda: [NEW, NEWER, OLD])
    dead: set[str] = field(default_factory=set)
    # Jobs that ran on hosts that died.
    lost: int = 0
    log: list[str] = field(default_factory=list)

    async def run(self, count: int) -> None:
        """Disturb the pool this many times."""
        for _ in range(count):
            disturb = self.rng.choice(
                [
                    self.change_image,
                    self.change_image,
                    self.change_replicas,
                    self.kill_host,
                    self.revive_hosts,
                    self.unready,
                    self.cordon,
                    self.pause,
                    self.replace_controller,
                    self.replace_controller,
                ]
            )
            self.log.append(f"{asyncio.get_running_loop().time():.0f} {disturb.__name__}")
            self.world.invariants.remember_ready()
            await disturb()
            pause = _LEAST_PAUSE * (_MOST_PAUSE / _LEAST_PAUSE) ** self.rng.random()
            await asyncio.sleep(pause)
            self.world.invariants.check()

    async def end(self) -> None:
        """Undo everything that would keep the pool from converging."""
        await self.revive_hosts()
        for name in self.world.hosts.hosts:
            await self._set_cordoned(name, value=False)
        for pod in await self.world.pods():
            self.world.hosts.unready(pod.name, is_ready=True)
        await self.world.annotate({names.annotations.ROLLOUT_PAUSED: None})

    def start_controller(self) -> None:
        """Start another controller."""
        self.started += 1
        identity = f"controller-{self.started}" if self.mode == "elected" else ""
        self.world.start_controller(identity, delay=self.delay)

    async def change_image(self) -> None:
        """Change the image to another one."""
        if self.images:
            await self.world.patch({"image": self.images.pop(0)})

    async def change_replicas(self) -> None:
        """Change the number of Pods."""
        hosts = len(self.world.hosts.hosts)
        await self.world.patch({"replicas": self.rng.randint(max(1, hosts - 2), hosts)})

    async def kill_host(self) -> None:
        """Let a host die, but never more than one at a time."""
        if self.dead:
            return
        name = self.rng.choice(sorted(self.world.hosts.hosts))
        self.dead.add(name)
        pods = {pod.name for pod in await self.world.pods() if pod.spec.node_name == name}
        if self.world.dispatch is not None:
            self.lost += sum(job.pod in pods for job in self.world.dispatch.running_jobs())
        await self.world.hosts.kill_host(name)

    async def revive_hosts(self) -> None:
        """Start the dead hosts again."""
        for name in sorted(self.dead):
            await self.world.hosts.revive_host(name)
        self.dead.clear()

    async def unready(self) -> None:
        """Let a guest stop responding for a while, or for ever."""
        pods = sorted(pod.name for pod in await self.world.pods() if is_alive(pod))
        if pods:
            self.world.hosts.unready(self.rng.choice(pods), is_ready=self.rng.random() < 0.5)

    async def cordon(self) -> None:
        """Cordon a host, or uncordon it."""
        name = self.rng.choice(sorted(self.world.hosts.hosts))
        await self._set_cordoned(name, value=self.rng.random() < 0.5)

    async def pause(self) -> None:
        """Pause the roll, or resume it."""
        value = self.rng.choice(["true", None])
        await self.world.annotate({names.annotations.ROLLOUT_PAUSED: value})

    async def replace_controller(self) -> None:
        """Kill a controller at one of its next writes, or at once if it makes none, and start another one."""
        checkpoints = self.world.checkpoints
        checkpoints.killed.clear()
        checkpoints.kill_at = checkpoints.count + self.rng.randint(1, 6)
        try:
            async with asyncio.timeout(self.rng.choice([1, 60])):
                await checkpoints.killed.wait()
        except TimeoutError:
            pass
        checkpoints.kill_at = None
        running = [each for each in self.world.controllers if not each.task.done()]
        dead = [each for each in running if each.connection.is_dead] or [self.rng.choice(running)]
        for each in dead:
            await (
                each.stop()
                if self.rng.random() < 0.3 and not each.connection.is_dead
                else each.kill()
            )
            self.start_controller()

    async def _set_cordoned(self, name: str, *, value: bool) -> None:
        patch = {"spec": {"unschedulable": value}}
        await self.world.kube.merge_patch(Node, name, patch)


async def run(seed: int, *, count: int = 14) -> None:
    """Run one seed."""
    rng = random.Random(f"disturbances/{seed}")
    hosts, dispatch = rng.randint(3, 8), rng.random() < 0.7
    settings = FleetSettings(hosts=hosts, on_disk=(OLD,), seed=seed, host_bytes_per_second=5e7)
    async with a_world(
        settings, seed=seed, dispatch=dispatch, has_signals=rng.random() < 0.5
    ) as world:
        mode = rng.choice(MODES)
        disturbance = Disturbance(world, rng, mode, delay=rng.choice([0.0, 0.5, 5.0]))
        staging = Staging(mode=rng.choice(STAGING))
        world.invariants.allows_cold = staging.mode == "Disabled"
        for _ in range(1 if mode == "replaced" else 2):
            disturbance.start_controller()
        percent = rng.choice([5, 25, 40])
        await world.create_pool(rollout=Rollout(max_concurrent_percent=percent, staging=staging))
        await world.until_ready(hosts)
        jobs = _jobs(world, rng, hosts)
        try:
            await disturbance.run(count)
            await disturbance.end()
            await _until_converged(world, disturbance, jobs)
        except AssertionError as error:
            error.add_note(f"seed {seed}: {mode}, {hosts} hosts, {percent} %, {disturbance.log}")
            raise


def _jobs(world: World, rng: random.Random, hosts: int) -> JobSource | None:
    if world.dispatch is None or rng.random() < 0.3:
        return None
    # From nearly none to more than the pool can run.
    per_hour = hosts * rng.choice([1, 4, 14])
    return world.jobs(per_hour=per_hour, median=timedelta(minutes=4), sigma=0.3)


async def _until_converged(world: World, disturbance: Disturbance, jobs: JobSource | None) -> None:
    if jobs is not None:
        await world.stop_jobs()
        deadline = asyncio.get_running_loop().time() + 36_000
        while unfinished := [job for job in jobs.jobs if job.finished_at is None]:
            assert asyncio.get_running_loop().time() < deadline, unfinished[:3]
            await asyncio.sleep(30)
        assert sum(job.lost for job in jobs.jobs) <= disturbance.lost
    await world.until_settled(None)
