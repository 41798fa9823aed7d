"""The agent is killed at every point of every life, and the next one goes on as if nothing had been.

A point is the time before, within or after a call of a program, a start of a run, a write to the API (whose answer is then lost), or
after a write to the ledger. Under hypothesis' profile `fast` only some of the points are looked at.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import settings

from bramley.base import virtual_time
from tests.scenarios.agent_life import crashing
from tests.scenarios.agent_life.crashing import Death
from tests.scenarios.agent_life.lives import FIRST, JOB, LIVES, Point
from tools.telling import Tell

SOME = 60
# Of the points at which an agent dies whose successor dies as well.
TWICE = 4
# A successor has written all that it has to, and is at its Pods, before it has passed so many points.
RECOVERED = 24
TELLING = (
    Point("after writing claimed", 0),
    Point("within tart clone", 1),
    Point("within run", 0),
    Point("after run", 0),
    Point(f"after PATCH {JOB}/status", 2),
    Point("after writing ended", 0),
    Point("after writing reported", 0),
    Point("after tart delete", 0),
)


@pytest.fixture(scope="module")
def whole() -> dict[str, list[Point]]:
    """Return all points of all lives."""
    return {told: virtual_time.run(crashing.tell(life)) for told, life in LIVES.items()}


async def suffer(told: str, deaths: Iterable[Death], tell: Tell) -> None:
    """Tell a life once for each death."""
    is_fast = settings().max_examples < settings.get_profile("default").max_examples
    chosen = list(deaths)[:: SOME if is_fast else 1]
    for death in chosen:
        try:
            await crashing.tell(LIVES[told], death)
        except (AssertionError, ExceptionGroup) as error:
            error.add_note(f"{told}: {death}")
            raise
    tell("deaths of the agent", "killed at {} points; nothing was lost or left", len(chosen))


@pytest.mark.parametrize("told", LIVES)
async def test_killed_anywhere_nothing_is_lost_or_left(
    told: str, whole: dict[str, list[Point]], tell: Tell
) -> None:
    await suffer(told, map(Death, crashing.own(told, whole)), tell)


async def test_rebooted_anywhere_no_used_disk_boots_again(
    whole: dict[str, list[Point]], tell: Tell
) -> None:
    points = [each for each in whole[FIRST] if not crashing.is_background(each.moment)]

    await suffer(FIRST, (Death(each, is_reboot=True) for each in points), tell)


async def test_killed_again_while_it_recovers_nothing_is_lost_or_left(
    whole: dict[str, list[Point]], tell: Tell
) -> None:
    rng, points = random.Random(RECOVERED), whole[FIRST][::TWICE]

    deaths = (Death(each, again_after=rng.randint(1, RECOVERED)) for each in points)
    await suffer(FIRST, deaths, tell)


@pytest.mark.parametrize("point", TELLING, ids=lambda point: point.moment)
async def test_killed_where_most_is_at_stake_nothing_is_lost_or_left(point: Point) -> None:
    await crashing.tell(LIVES[FIRST], Death(point))


async def test_killed_while_a_clone_is_made_it_is_found_when_it_comes() -> None:
    life = LIVES["deleted while it is cloned slowly"]

    await crashing.tell(life, Death(Point("within tart clone", 1)))
