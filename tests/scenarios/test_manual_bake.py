"""A VM created manually is pushed for longer than the collector's period, and must stay whole to the end.

Tart releases its own lock early in a push, so only the agent's rules protect the VM: it is not in the ledger, its push is in the process
table, and a lease can be held on it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from bramley.agent.images.image_requests import ImageRequest, Ready
from bramley.agent.ledger import VmRecord, VmState
from bramley.api.core import Node
from bramley.api.names import annotations as names
from bramley.app.agent_components import AgentComponents
from bramley.sim.mac.processes import Call
from tests.scenarios.agent_life.world import IMAGE, NODE, World, a_world, is_ready

BAKED = "tuist-runner"
TARGET = "ghcr.io/example/baked:1"
GB = 10**9
TWELVE_MINUTES = 12 * 60


@dataclasses.dataclass
class ShellUser:
    """A user at the host's shell; `output` is what the programs printed."""

    world: World
    output: list[str] = dataclasses.field(default_factory=list)

    async def run(self, *argv: str) -> int:
        home = str(self.world.mac.folders.tart_home)
        call = Call(argv, self.output.append, self.output.append, {"TART_HOME": home, "CI": "1"})
        return await asyncio.shield(self.world.mac.start(call, parent=1).exit_code)


@asynccontextmanager
async def a_builder(tmp_path: Path, *, collects: bool) -> AsyncIterator[tuple[World, ShellUser]]:
    """Create a Mac with an agent, and a VM that was created manually and takes twelve minutes to push."""
    async with a_world(tmp_path, collects=collects) as world:
        world.mac.settings.image("ghcr.io/example/base:1", size_bytes=20 * GB)
        world.mac.settings.timings(push_bytes_per_second=10 * GB / TWELVE_MINUTES)
        user = ShellUser(world)
        assert await user.run("tart", "clone", "ghcr.io/example/base:1", BAKED) == 0
        world.start()
        await world.until(lambda: is_ready(world.kube), within=timedelta(minutes=2), what="Ready")
        yield world, user


async def pushed(world: World, user: ShellUser) -> int:
    began = world.clock.monotonic()
    code = await user.run("tart", "push", BAKED, TARGET)
    assert world.clock.monotonic() - began >= TWELVE_MINUTES
    return code


@pytest.mark.parametrize("collects", [True, False], ids=["collector on", "--disable-vm-gc"])
async def test_bake_is_pushed_for_twelve_minutes(tmp_path: Path, *, collects: bool) -> None:
    async with a_builder(tmp_path, collects=collects) as (world, user):
        assert await pushed(world, user) == 0

        assert (world.mac.folders.tart_home / "vms" / BAKED / "nvram.bin").exists()
        assert "pushing NVRAM..." in user.output


async def test_collector_with_other_work_keeps_the_baked_vm(tmp_path: Path) -> None:
    """A Pod runs, an orphan is collected and the disk is low; only the baked VM is untouched."""
    async with a_builder(tmp_path, collects=True) as (world, user):
        await world.pod("job", image=IMAGE)
        assert await user.run("tart", "clone", "ghcr.io/example/base:1", "orphan") == 0
        orphaned(world, "orphan")
        world.mac.settings.host(other_bytes=400 * GB)
        push = world.group.create_task(pushed(world, user))
        collector = components_of(world).collector
        assert collector is not None
        for _ in range(11):
            await asyncio.sleep(60)
            await collector.reclaim()

        assert await push == 0
        assert not (world.mac.folders.tart_home / "vms" / "orphan").exists()


async def test_manually_created_vm_outlives_every_collection(tmp_path: Path) -> None:
    """Between bake and push: no process names the VM and no lease covers it."""
    async with a_builder(tmp_path, collects=True) as (world, _):
        await world.pod("job", image=IMAGE)
        collector = components_of(world).collector
        assert collector is not None
        for _ in range(3):
            await asyncio.sleep(360)
            await collector.reclaim()

        assert (world.mac.folders.tart_home / "vms" / BAKED / "nvram.bin").exists()


def orphaned(world: World, vm: str) -> None:
    """Record a VM as that of a Pod that was deleted long ago."""
    components_of(world).ledger.put(
        VmRecord(
            vm=vm,
            namespace="default",
            pod="gone",
            uid="gone",
            image=IMAGE,
            state=VmState.REPORTED,
            created_at=world.clock.now() - timedelta(days=1),
        )
    )


async def test_lease_keeps_the_images(tmp_path: Path) -> None:
    async with a_builder(tmp_path, collects=True) as (world, _):
        components = components_of(world)
        assert components.collector is not None

        async def is_staged() -> bool:
            return bool(components.images.present())

        async def is_reported() -> bool:
            noted = (await world.kube.get(Node, NODE)).metadata.annotations
            return '"Staged"' in noted.get(names.STAGED_IMAGES, "")

        await stage(world, [IMAGE])
        await world.until(is_reported, within=timedelta(minutes=9), what="staged")
        assert await is_staged()
        await stage(world, [])
        handle = leases.acquire(world.mac.folders.leases, Lease(vms=(BAKED,)))
        await asyncio.sleep(600)
        assert not await components.collector.reclaim()

        os.close(handle)
        assert await components.collector.reclaim()
        assert not await is_staged()
        assert (world.mac.folders.tart_home / "vms" / BAKED).exists()


def components_of(world: World) -> AgentComponents:
    assert world.agent is not None
    assert world.agent.components is not None
    return world.agent.components


async def stage(world: World, images: list[str]) -> None:
    noted = {names.STAGE_IMAGES: json.dumps({"images": images})}
    await world.kube.merge_patch(Node, NODE, {"metadata": {"annotations": noted}})


@pytest.mark.parametrize("collects", [True, False], ids=["collector on", "--disable-vm-gc"])
async def test_full_disk_deletes_images_only_with_a_collector(
    tmp_path: Path, *, collects: bool
) -> None:
    async with a_builder(tmp_path, collects=collects) as (world, _):
        components = components_of(world)
        assert (components.collector is not None) is collects

        async def is_here() -> bool:
            request = ImageRequest("ghcr.io/example/base:1", "unused")
            return isinstance(components.images.request(request, on_change=lambda: None), Ready)

        await world.until(is_here, within=timedelta(minutes=5), what="an unused image")
        await asyncio.sleep(600)
        world.mac.settings.fault("pull", "no_space", times=1)
        await world.pod("job", image=IMAGE)
        await asyncio.sleep(60)

        bases = {image.digest for image in components.images.present()}
        assert (world.mac.folders.tart_home / "vms" / BAKED).exists()
        assert len(bases) == (1 if collects else 2)
        assert IMAGE.partition("@")[2] in bases
