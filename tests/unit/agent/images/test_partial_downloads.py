"""Partial downloads are held between attempts, handed to the next pull, and released when they are in the way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.agent.images.image_requests import Failed, Pulling
from bramley.agent.images.partial_downloads import MAX_IDLE, PartialDownloads
from bramley.agent.tart import references
from bramley.agent.tart.failures import NoSpace
from tests.unit.agent.images.image_world import (
    GB,
    ImageWorld,
    assemble,
    image_world,
    pinned,
    until,
)

B = pinned("b")
DISK = 460 * GB


def folder_of(world: ImageWorld, image: str = B) -> Path:
    reference = references.parse(image)
    assert reference is not None
    return references.pull_folder(world.tart.home, reference)


async def fail_halfway(world: ImageWorld) -> Failed:
    """Let all attempts of a pull fail, so that a partial download is left."""
    world.mac.settings.fault("pull", "status", code=503, percent=50, times=5)
    return await world.failed(B)


async def sweep(world: ImageWorld) -> None:
    await world.mac.start_agent().programs.run(("tart", "list"), environment={})


async def test_partial_download_is_kept_after_the_last_attempt(world: ImageWorld) -> None:
    await fail_halfway(world)

    await sweep(world)

    assert folder_of(world).exists()
    assert isinstance(world.request(B), Failed)
    await world.ready(B)
    assert not folder_of(world).exists()


async def test_unused_download_is_released_after_a_while(world: ImageWorld) -> None:
    await fail_halfway(world)
    await asyncio.sleep(MAX_IDLE.total_seconds() - 60)
    await sweep(world)
    assert folder_of(world).exists()

    await asyncio.sleep(120)
    await sweep(world)

    assert not folder_of(world).exists()


async def test_unused_download_is_released_when_space_is_short(world: ImageWorld) -> None:
    await fail_halfway(world)

    world.images.puller.partials.drop_idle()
    await sweep(world)

    assert not folder_of(world).exists()


async def test_download_in_use_is_kept_when_space_is_short(world: ImageWorld) -> None:
    world.mac.settings.fault("pull", "status", code=429, percent=50, times=1)
    assert isinstance(world.request(B), Pulling)
    await until(lambda: folder_of(world).exists() and not world.mac.table.living())

    world.images.puller.partials.drop_idle()
    await sweep(world)

    assert folder_of(world).exists()
    await world.ready(B)


async def test_download_that_does_not_fit_is_removed(tmp_path: Path) -> None:
    async with image_world(tmp_path) as world:
        await fail_halfway(world)
        world.mac.settings.host(other_bytes=DISK - 11 * GB)
        await until(lambda: not isinstance(world.request(B), Failed))
        answer = await world.failed(B)
        assert isinstance(answer.error, NoSpace)

        await sweep(world)

        assert not folder_of(world).exists()


async def test_pull_by_another_program_gets_an_unused_download(world: ImageWorld) -> None:
    await fail_halfway(world)
    pull = world.mac.start_agent().programs.run(("tart", "pull", B), environment={})

    async with asyncio.timeout(600):
        result = await pull

    assert result.code == 0
    assert not folder_of(world).exists()


async def test_download_of_a_pull_that_outlived_its_agent_is_held_when_it_ends(
    tmp_path: Path,
) -> None:
    async with image_world(tmp_path) as world:
        world.request(B)
        await until(lambda: folder_of(world).exists())
        world.side.kill()
        following = assemble(world.mac)
        partials = following.images.puller.partials
        await partials.hold_existing()
        running = asyncio.create_task(partials.run())
        await until(lambda: not world.mac.table.living())
        await asyncio.sleep(2)

        await sweep(world)

        assert folder_of(world).exists()
        running.cancel()


@pytest.mark.parametrize("name", ["5D41402A-BC4B-2A76-B971-9D911017C592", "run-disk-1", "x" * 32])
async def test_staging_of_other_commands_is_not_held(world: ImageWorld, name: str) -> None:
    left = world.tart.home / "tmp" / name
    left.mkdir(parents=True)
    await PartialDownloads(world.tart.home, world.side.host, world.mac.clock).hold_existing()

    await sweep(world)

    assert not left.exists()


async def test_link_in_place_of_a_download_is_not_followed(
    world: ImageWorld, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (world.tart.home / "tmp").mkdir(parents=True)
    folder_of(world).symlink_to(target)

    await PartialDownloads(world.tart.home, world.side.host, world.mac.clock).hold_existing()

    assert world.mac.tart.flocks.holder(str(target)) is None
