"""The agent is killed at every point of the later half of lives, again while it recovers, and with its whole Mac."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.scenarios.agent_life import crashing, suffering
from tests.scenarios.agent_life.crashing import Death
from tests.scenarios.agent_life.lives import FIRST, LIVES

# A fast run has the deaths of test_crash_matrix.py where most is at stake.
pytestmark = pytest.mark.long
LATER = list(LIVES)[len(LIVES) // 2 :]
# Of the points at which an agent dies whose successor dies as well.
TWICE = 4
# A successor has written all that it has to, and is at its Pods, before it has passed so many points.
RECOVERED = 24


@pytest.mark.parametrize("told", LATER)
def test_killed_anywhere_nothing_is_lost_or_left(
    told: str, record_property: Callable[[str, object], None]
) -> None:
    suffering.suffer(told, map(Death, suffering.own_points(told)), record_property)


def test_rebooted_anywhere_no_used_disk_boots_again(
    record_property: Callable[[str, object], None],
) -> None:
    points = suffering.points_of(FIRST)
    chosen = [each for each in points if not crashing.is_background(each.moment)]

    suffering.suffer(FIRST, (Death(each, is_reboot=True) for each in chosen), record_property)


def test_killed_again_while_it_recovers_nothing_is_lost_or_left(
    record_property: Callable[[str, object], None],
) -> None:
    rng, points = random.Random(RECOVERED), suffering.points_of(FIRST)[::TWICE]

    deaths = (Death(each, again_after=rng.randint(1, RECOVERED)) for each in points)
    suffering.suffer(FIRST, deaths, record_property)
