"""Lives that are told again and again, with the agent dying at another point of them each time.

Under hypothesis' profile `fast` only some of the points are looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from bramley.base import virtual_time
from tests.scenarios.agent_life import crashing
from tests.scenarios.agent_life.crashing import Death
from tests.scenarios.agent_life.lives import LIVES, Point
from tests.unit import example_counts

SOME = 60


@functools.cache
def points_of(told: str) -> list[Point]:
    """Return all points of a life."""
    return virtual_time.run(crashing.tell(LIVES[told]))


def own_points(told: str) -> list[Point]:
    """Return the points of a life that none before it has."""
    until = list(LIVES)[: list(LIVES).index(told) + 1]
    return crashing.own(told, {each: points_of(each) for each in until})


def suffer(
    told: str, deaths: Iterable[Death], record_property: Callable[[str, object], None]
) -> None:
    """Tell a life once for each death."""
    chosen = list(deaths)[:: SOME if example_counts.share() < 1 else 1]
    for death in chosen:
        try:
            virtual_time.run(crashing.tell(LIVES[told], death))
        except (AssertionError, ExceptionGroup) as error:
            error.add_note(f"{told}: {death}")
            raise
    record_property("kill points", len(chosen))
