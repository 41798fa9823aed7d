"""A Pod on a Mac without disk space: its event has the figures, and it runs as soon as there is space."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.scenarios.agent_images.pods import (
    failure_messages,
    has_phase,
    is_gone,
    start_with_pod,
    until_phase,
)
from tests.scenarios.agent_life.world import TAGGED, World, a_world, is_ready

GB = 10**9
DISK = 460 * GB
UNUSED = "ghcr.io/example/unused:1"


async def start(world: World, *, size: int, free: int) -> None:
    world.mac.settings.image(TAGGED, size_bytes=size, compressed_bytes=size // 2)
    world.mac.settings.host(other_bytes=DISK - free)
    world.start()
    await world.until(lambda: is_ready(world.kube), within=timedelta(seconds=30), what="Ready")
    await world.pod("job")


@pytest.mark.parametrize("collects", [True, False])
async def test_pull_that_does_not_fit_is_reported_with_figures_and_retried(
    tmp_path: Path, *, collects: bool
) -> None:
    async with a_world(tmp_path, collects=collects) as world:
        await start(world, size=200 * GB, free=60 * GB)
        await asyncio.sleep(120)

        messages = await failure_messages(world, "job")
        assert any("needs at least 100.0 GB, and 60.0 GB are free" in each for each in messages)
        assert await has_phase(world, "job", "Pending")
        world.mac.settings.host(other_bytes=0)
        await until_phase(world, "job", "Running", within=3 * 3600)


async def test_clone_that_does_not_fit_is_reported_with_figures_and_retried(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await start(world, size=20 * GB, free=21 * GB)
        await asyncio.sleep(600)

        messages = await failure_messages(world, "job")
        assert any("clone needs at least 2.0 GB, and 1.0 GB are free" in each for each in messages)
        world.mac.settings.host(other_bytes=0)
        await until_phase(world, "job", "Running", within=600)


async def test_clone_that_fits_does_not_wait_for_the_deletion_of_images(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        guest = {"then": "stay", "work": 9e4, "address": 0.5}
        world.mac.settings.image(UNUSED, size_bytes=20 * GB, guest=guest)
        # Its clones may grow to more than is free.
        world.mac.settings.image(TAGGED, size_bytes=20 * GB, disk_bytes=140 * GB)
        await start_with_pod(world)
        await world.pod("other", image=UNUSED)
        await until_phase(world, "other", "Running", within=600)
        await world.delete("other", grace=timedelta())
        await world.until(
            lambda: is_gone(world, "other"), within=timedelta(minutes=2), what="the Pod is gone"
        )
        bases = len(list((world.mac.folders.tart_home / "vms").glob("tuist-golden-*")))
        await asyncio.sleep(600)
        # Of the disk 20 % are free: the collector deletes nothing by itself.
        world.mac.settings.host(other_bytes=DISK - 40 * GB - 92 * GB)
        world.mac.faults.add("tart delete", "slow", seconds=240.0)

        await world.pod("second")
        taken = await until_phase(world, "second", "Running", within=3600)
        assert taken < 5

        await asyncio.sleep(600)
        assert len(list((world.mac.folders.tart_home / "vms").glob("tuist-golden-*"))) == bases - 1
