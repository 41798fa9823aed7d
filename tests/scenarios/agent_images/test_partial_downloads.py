"""A partial download is kept over a pause and over a restart of the agent, while other commands of tart run."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from tests.scenarios.agent_images.pods import until_phase
from tests.scenarios.agent_life.world import IMAGE, TAGGED, World, a_world, is_ready

GB = 10**9
SIZE = 40 * GB
# A pull saves whole chunks, and loses the one that it was downloading.
CHUNK = SIZE // 20
OTHER = "ghcr.io/example/other:1"


def received(world: World) -> int:
    """Return how many bytes all pulls have downloaded."""
    file = world.mac.folders.tart_home / ".sim" / "pulled-bytes"
    return sum(map(int, file.read_text().split())) if file.exists() else 0


def download(world: World, image: str) -> Path:
    name = hashlib.md5(image.encode(), usedforsecurity=False).hexdigest()
    return world.mac.folders.tart_home / "tmp" / name


async def start(world: World, image: str) -> None:
    world.mac.settings.image(TAGGED, size_bytes=2 * SIZE, compressed_bytes=SIZE)
    world.mac.settings.image(TAGGED, guest={"then": "stay", "work": 9e4, "address": 0.5})
    world.start()
    await world.until(lambda: is_ready(world.kube), within=timedelta(seconds=30), what="Ready")
    await world.pod("job", image=image)


async def until_received(world: World, count: int) -> None:
    async def has_received() -> bool:
        return received(world) >= count

    await world.until(has_received, within=timedelta(hours=1), what="a part is downloaded")


async def sweep(world: World) -> None:
    """Run a command of tart as another program on the Mac does, which removes what is not locked."""
    side = world.mac.start_agent()
    await side.programs.run(("tart", "list"), environment={})


@pytest.mark.parametrize("image", [IMAGE, TAGGED])
async def test_pause_after_429_keeps_the_partial_download(tmp_path: Path, image: str) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart pull", "status", code=429, percent=60, times=2)
        await start(world, image)
        await until_received(world, SIZE // 2)
        pauses = 0
        async with asyncio.timeout(3600):
            while not await _is_running(world):
                await asyncio.sleep(1)
                await sweep(world)
                pauses += download(world, image).exists()

        assert pauses > 3
        assert received(world) <= SIZE + 2 * CHUNK


async def _is_running(world: World) -> bool:
    pod = await world.find("job")
    return pod is not None and pod.status.phase == "Running"


@pytest.mark.parametrize("image", [IMAGE, TAGGED])
@pytest.mark.parametrize("graceful", [True, False])
async def test_restart_of_the_agent_keeps_the_partial_download(
    tmp_path: Path, image: str, *, graceful: bool
) -> None:
    async with a_world(tmp_path) as world:
        await start(world, image)
        await until_received(world, SIZE // 2)
        if graceful:
            assert world.agent is not None
            assert world.task is not None
            world.agent.stop()
            await asyncio.wait([world.task])
        await world.kill()
        world.start()
        await until_phase(world, "job", "Running", within=3600)

        assert received(world) <= SIZE + 2 * CHUNK


async def test_pull_of_another_program_from_the_registry_keeps_the_partial_download(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(OTHER, size_bytes=2 * SIZE, compressed_bytes=SIZE)
        await start(world, IMAGE)
        await until_received(world, SIZE // 2)
        await world.reboot()
        other = world.mac.start_agent()
        pull = asyncio.create_task(other.programs.run(("tart", "pull", OTHER), environment={}))
        world.start()
        sweeps = 0
        while not pull.done():
            # Between two hand-overs, which take place every second.
            await asyncio.sleep(7)
            await sweep(world)
            sweeps += not pull.done()
        await until_phase(world, "job", "Running", within=3600)

        assert sweeps > 10
        assert received(world) <= 2 * SIZE + 2 * CHUNK


async def test_reboot_of_the_mac_keeps_the_partial_download(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await start(world, IMAGE)
        await until_received(world, SIZE // 2)
        await world.reboot()
        world.start()
        await asyncio.sleep(1)
        await sweep(world)
        await until_phase(world, "job", "Running", within=3600)

        assert received(world) <= SIZE + 2 * CHUNK


async def test_partial_download_that_no_pod_needs_is_removed_after_an_hour(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await start(world, IMAGE)
        await until_received(world, SIZE // 2)
        await world.kill()
        await world.delete("job", grace=timedelta())
        world.start()
        await asyncio.sleep(1800)
        assert download(world, IMAGE).exists()

        await asyncio.sleep(2700)

        assert not download(world, IMAGE).exists()
