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
from tests.scenarios.agent_life.conftest import COUNTS
from tests.scenarios.agent_life.crashing import Death
from tests.scenarios.agent_life.lives import FIRST, JOB, LIVES, Point

SOME = 60
# Of the points at which an agent dies whose successor dies as well.
TWICE = 3
# A successor has written all that it has to, and is at its Pods, before it has passed so many points.
RECOVERED = 24
BEGUN = "after writing claimed"
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
def first() -> list[Point]:
    """Return all points of the first life."""
    return virtual_time.run(crashing.tell(LIVES[FIRST]))


async def suffer(told: str, deaths: Iterable[Death], config: pytest.Config) -> None:
    """Tell a life once for each death."""
    is_fast = settings().max_examples < settings.get_profile("default").max_examples
    chosen = list(deaths)[:: SOME if is_fast else 1]
    for death in chosen:
        try:
            await crashing.tell(LIVES[told], death)
        except (AssertionError, ExceptionGroup) as error:
            error.add_note(f"{told}: {death}")
            raise
    config.stash[COUNTS].append(len(chosen))


@pytest.mark.parametrize("told", LIVES)
async def test_killed_anywhere_nothing_is_lost_or_left(
    told: str, first: list[Point], pytestconfig: pytest.Config
) -> None:
    points = first
    if told != FIRST:
        own = crashing.own(LIVES[told], await crashing.tell(LIVES[told]), first)
        points = crashing.thinned(own)

    await suffer(told, map(Death, points), pytestconfig)


async def test_rebooted_anywhere_no_used_disk_boots_again(
    first: list[Point], pytestconfig: pytest.Config
) -> None:
    begun = first[first.index(Point(BEGUN, 0)) :]

    deaths = (Death(point, is_reboot=True) for point in crashing.thinned(begun))
    await suffer(FIRST, deaths, pytestconfig)


async def test_killed_again_while_it_recovers_nothing_is_lost_or_left(
    first: list[Point], pytestconfig: pytest.Config
) -> None:
    rng = random.Random(len(first))
    points = crashing.thinned(first)[::TWICE]

    deaths = (Death(point, again_after=rng.randint(1, RECOVERED)) for point in points)
    await suffer(FIRST, deaths, pytestconfig)


@pytest.mark.parametrize("point", TELLING, ids=lambda point: point.moment)
async def test_killed_where_most_is_at_stake_nothing_is_lost_or_left(point: Point) -> None:
    await crashing.tell(LIVES[FIRST], Death(point))
