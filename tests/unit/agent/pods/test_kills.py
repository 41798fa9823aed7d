"""The agent is killed between any two effects of a Pod's whole life, and the next one goes on as if nothing had been."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bramley.api.names import agent
from bramley.api.pod import Pod
from tests.unit.agent.pods.world import World, a_world

CODE = 3
Story = Callable[[World], Awaitable[None]]


async def whole_life(world: World) -> None:
    await world.until_phase("Succeeded", "Failed")
    await check_end(world, await world.see())
    await world.delete()
    await world.until_gone()


async def deleted_while_it_runs(world: World) -> None:
    await world.until_phase("Running", "Failed")
    await world.delete()
    await world.until_gone()


async def deleted_at_once(world: World) -> None:
    await world.until(lambda: world.means.ledger.vms())
    await world.delete()
    await world.until_gone()


async def check_end(world: World, pod: Pod) -> None:
    ended = pod.status.container_statuses[0].state.terminated
    assert ended is not None
    # A supervisor that was killed before it began never says how tart ended, and no guest has ever come up.
    assert ended.exit_code == CODE or (ended.reason == agent.RUN_LOST and world.boots == 0)


STORIES: dict[str, Story] = {
    "whole life": whole_life,
    "deleted while it runs": deleted_while_it_runs,
    "deleted at once": deleted_at_once,
}


async def tell(
    story: Story, folder: Path, kill_at: tuple[str, int] | None
) -> list[tuple[str, int]]:
    """Tell a story with one death in it, and return the moments that the first agent lived through."""
    async with a_world(folder, code=CODE, work=4.0, ready=12.0, starts=False) as world:
        moments: list[tuple[str, int]] = []
        life = world.start()

        def pass_by(moment: str) -> None:
            moments.append((moment, sum(moment == each for each, _ in moments)))
            if moments[-1] == kill_at:
                life.side.die()

        async def bury() -> None:
            while life.side.lives:
                await asyncio.sleep(0.01)
            await world.kill()
            await asyncio.sleep(2)
            world.start()

        life.side.on_moment = pass_by
        undertaker = world.group.create_task(bury())
        await world.pod(termination_grace_period_seconds=20)
        await story(world)
        await world.until(world.nothing_left)
        undertaker.cancel()
        assert world.boots <= 1
        assert kill_at is None or not life.side.lives
        return moments


def distinct(moments: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the moments that differ: an agent that asks for an address ten times is ten times in the same state.

    Events are told beside everything else, so a death at one of them is one at any time.
    """
    return [
        (moment, number)
        for moment, number in dict.fromkeys(moments)
        if number == 0 or not ("tart ip" in moment or "events" in moment)
    ]


@pytest.mark.parametrize("told", STORIES)
async def test_killed_anywhere_nothing_is_lost_or_left(told: str, tmp_path: Path) -> None:
    story = STORIES[told]
    moments = distinct(await tell(story, tmp_path / "first", None))
    assert len(moments) > 10

    for number, moment in enumerate(moments):
        try:
            await tell(story, tmp_path / str(number), moment)
        except (AssertionError, TimeoutError, ExceptionGroup) as error:
            error.add_note(f"killed at {moment}")
            raise
