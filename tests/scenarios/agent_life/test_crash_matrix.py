"""The agent is killed at every point of every life, and the next one goes on as if nothing had been.

A point is the time before or after a call of a program, a start of a run, a write to the API (whose answer is then lost), or
after a write to the ledger. Under hypothesis' profile `fast` only some of the points are looked at.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.scenarios.agent_life import crashing
from tests.scenarios.agent_life.conftest import COUNTS
from tests.scenarios.agent_life.crashing import Point
from tests.scenarios.agent_life.lives import FIRST, LIVES

SOME = 12


async def points_of(told: str, folder: Path) -> list[Point]:
    """Return the points of a life at which the agent is to die: all of the first life, of others what is their own."""
    first = await crashing.tell(LIVES[FIRST], folder / "first")
    if told == FIRST:
        return first
    points = await crashing.tell(LIVES[told], folder / "whole")
    return crashing.thinned(crashing.own(LIVES[told], points, first))


@pytest.mark.parametrize("told", LIVES)
async def test_killed_anywhere_nothing_is_lost_or_left(
    told: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    points = await points_of(told, tmp_path)
    is_fast = settings().max_examples < settings.get_profile("default").max_examples
    chosen = points[:: SOME if is_fast else 1]

    for number, point in enumerate(chosen):
        try:
            await crashing.tell(LIVES[told], tmp_path / str(number), dies_at=point)
        except (AssertionError, ExceptionGroup) as error:
            error.add_note(f"{told}: killed {point.moment} ({point.number})")
            raise
    pytestconfig.stash[COUNTS][told] = len(chosen)
