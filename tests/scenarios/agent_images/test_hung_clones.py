"""A clone that hangs delays its own Pod, and other Pods of the same image only as far as tart itself makes them wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from bramley.api.names import metrics as names
from tests.scenarios.agent_images.pods import (
    failure_messages,
    has_phase,
    is_gone,
    start_with_pod,
    until_phase,
)
from tests.scenarios.agent_life.world import World, a_world

HUNG, SECOND = "hung", "second"


async def start_with_image(world: World) -> None:
    """Start the agent and make the golden base by a first Pod."""
    await start_with_pod(world, "warm-up")
    await world.delete("warm-up", grace=timedelta())
    await world.until(
        lambda: is_gone(world, "warm-up"), within=timedelta(minutes=2), what="the first Pod is gone"
    )


async def hang_clone(world: World, *, at: str) -> None:
    """Create a Pod whose first clone hangs, and wait until it does."""
    world.mac.faults.add("tart clone", "hang", target=f"*{HUNG}*", at=at, times=1)
    await world.pod(HUNG)

    async def is_cloning() -> bool:
        return any(each.argv[1:2] == ("clone",) for each in world.mac.table.living())

    await world.until(is_cloning, within=timedelta(seconds=30), what="the clone has started")
    await asyncio.sleep(1)


def clones(world: World, result: str) -> float:
    name = f"{names.CLONE_DURATION.name}_count"
    return world.registries[-1].get_sample_value(name, {"result": result}) or 0.0


async def test_second_pod_of_an_image_runs_within_five_seconds_of_a_hung_clone(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        await start_with_image(world)
        await hang_clone(world, at="start")

        await world.pod(SECOND)
        taken = await until_phase(world, SECOND, "Running", within=600)

        assert taken < 5
        assert not await has_phase(world, HUNG, "Running")


async def test_hung_clone_ends_after_a_minute_with_an_event_and_is_retried(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await start_with_image(world)
        await hang_clone(world, at="middle")

        taken = await until_phase(world, HUNG, "Running", within=600)

        messages = await failure_messages(world, HUNG)
        assert 55 < taken < 75
        assert any("did not end within 60 s" in message for message in messages), messages
        assert clones(world, "failed") == 1
        assert list((world.mac.folders.tart_home / "tmp").iterdir()) == []


async def test_clone_that_hangs_with_the_lock_of_tart_delays_others_by_its_deadline_only(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        await start_with_image(world)
        await hang_clone(world, at="middle")

        await world.pod(SECOND)
        taken = await until_phase(world, SECOND, "Running", within=600)

        # tart itself blocks every clone and every start meanwhile.
        assert 50 < taken < 75
