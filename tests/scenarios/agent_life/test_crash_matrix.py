"""The agent is killed at every point of every life, and the next one goes on as if nothing had been.

A point is the time before, within or after a call of a program, a start of a run, a write to the API (whose answer is then lost), or
after a write to the ledger. The lives that come later, and other deaths, are in test_later_crashes.py: together they would hold up
a run in several processes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.agent_life import crashing, suffering
from tests.scenarios.agent_life.crashing import Death
from tests.scenarios.agent_life.lives import FIRST, JOB, LIVES, Point

EARLIER = list(LIVES)[: len(LIVES) // 2]
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


# Each life has to be told once before its points are known; a fast run has those where most is at stake.
@pytest.mark.long
@pytest.mark.parametrize("told", EARLIER)
def test_killed_anywhere_nothing_is_lost_or_left(
    told: str, record_property: Callable[[str, object], None]
) -> None:
    suffering.suffer(told, map(Death, suffering.own_points(told)), record_property)


@pytest.mark.parametrize("point", TELLING, ids=lambda point: point.moment)
async def test_killed_where_most_is_at_stake_nothing_is_lost_or_left(point: Point) -> None:
    await crashing.tell(LIVES[FIRST], Death(point))


async def test_killed_while_a_clone_is_made_it_is_found_when_it_comes() -> None:
    life = LIVES["deleted while it is cloned slowly"]

    await crashing.tell(life, Death(Point("within tart clone", 1)))
