"""Every call at which a leader can stop; `make soak` runs them, in parallel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.machines.leaders import Stop, suspended
from tests.scenarios.machines.lives import LIVES, changes_at_provider, checkpoints, live

pytestmark = pytest.mark.soak

_PARTS = 8


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("stop", [Stop, suspended], ids=["killed", "suspended"])
@pytest.mark.parametrize("name", LIVES)
def test_leader_that_stops_at_any_call_is_replaced(
    name: str, stop: Callable[[int], Stop], part: int
) -> None:
    for at in range(1 + part, len(checkpoints(name)) + 1, _PARTS):
        assert len(live(name, stop(at))) >= at


@pytest.mark.parametrize("name", LIVES)
def test_request_that_is_processed_after_its_leader_was_killed_loses_no_host(name: str) -> None:
    for at in changes_at_provider(name):
        live(name, Stop(at, late=60))
