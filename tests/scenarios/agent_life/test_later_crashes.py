"""The agent is killed at every point of the later lifecycles, again while it recovers, and with its whole Mac."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.scenarios.agent_life import crashes
from tests.scenarios.agent_life.crashes import Crash
from tests.scenarios.agent_life.lifecycles import FIRST, LIFECYCLES

# A fast run has the critical crashes of test_crash_matrix.py.
pytestmark = pytest.mark.long
LATER = list(LIFECYCLES)[len(LIFECYCLES) // 2 :]
# One in so many points is the first of two crashes.
TWICE = 4
# The next agent has written its state and reconciled its Pods before it has passed so many points.
RECOVERED = 24


@pytest.mark.parametrize("lifecycle", LATER)
def test_crash_at_any_point_loses_and_leaves_nothing(
    lifecycle: str, record_property: Callable[[str, object], None]
) -> None:
    crashes.run_each(lifecycle, map(Crash, crashes.own_points(lifecycle)), record_property)


def test_reboot_at_any_point_boots_no_used_disk_again(
    record_property: Callable[[str, object], None],
) -> None:
    points = crashes.points_of(FIRST)
    selected = [each for each in points if not crashes.is_background(each.checkpoint)]

    crashes.run_each(FIRST, (Crash(each, is_reboot=True) for each in selected), record_property)


def test_second_crash_during_recovery_loses_and_leaves_nothing(
    record_property: Callable[[str, object], None],
) -> None:
    rng, points = random.Random(RECOVERED), crashes.points_of(FIRST)[::TWICE]

    twice = (Crash(each, again_after=rng.randint(1, RECOVERED)) for each in points)
    crashes.run_each(FIRST, twice, record_property)
