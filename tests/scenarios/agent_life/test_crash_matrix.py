"""The agent is killed at every point of every lifecycle, and the next one continues where it stopped.

A point is the time before, within or after a call of a program, a start of a run, a write to the API (whose response is then
lost), or after a write to the ledger. The later lifecycles, and other crashes, are in test_later_crashes.py: in one file they
would run in one process and take longest.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.agent_life import crashes
from tests.scenarios.agent_life.crashes import Crash
from tests.scenarios.agent_life.lifecycles import FIRST, JOB, LIFECYCLES, Point

EARLIER = list(LIFECYCLES)[: len(LIFECYCLES) // 2]
CRITICAL = (
    Point("after writing claimed", 0),
    Point("within tart clone", 1),
    Point("within run", 0),
    Point("after run", 0),
    Point(f"after PATCH {JOB}/status", 2),
    Point("after writing ended", 0),
    Point("after writing reported", 0),
    Point("after tart delete", 0),
)


# Each lifecycle must run once before its points are known; a fast run has only the critical ones.
@pytest.mark.long
@pytest.mark.parametrize("lifecycle", EARLIER)
def test_crash_at_any_point_loses_and_leaves_nothing(
    lifecycle: str, record_property: Callable[[str, object], None]
) -> None:
    crashes.run_each(lifecycle, map(Crash, crashes.own_points(lifecycle)), record_property)


@pytest.mark.parametrize("point", CRITICAL, ids=lambda point: point.checkpoint)
async def test_crash_at_a_critical_point_loses_and_leaves_nothing(point: Point) -> None:
    await crashes.run(LIFECYCLES[FIRST], Crash(point))


async def test_clone_that_finishes_after_a_crash_is_deleted() -> None:
    lifecycle = LIFECYCLES["deleted while it is cloned slowly"]

    await crashes.run(lifecycle, Crash(Point("within tart clone", 1)))
