"""A leader that is killed or suspended at any of its calls: the next one continues, and nothing is shared, lost or left behind."""

from __future__ import annotations

import pytest

from tests.scenarios.machines.leaders import Stop
from tests.scenarios.machines.lives import LIVES, changes_at_provider, checkpoints, live

# Every so many calls; all of them are tried by `make soak`.
_STEP = 61


@pytest.mark.parametrize("name", LIVES)
def test_killed_leader_is_replaced(name: str) -> None:
    for at in range(7, len(checkpoints(name)) + 1, _STEP):
        live(name, Stop(at))


@pytest.mark.parametrize("name", LIVES)
def test_suspended_leader_that_continues_beside_the_next_one_changes_nothing(name: str) -> None:
    for at in range(31, len(checkpoints(name)) + 1, _STEP):
        live(name, Stop(at, is_pause=True))


def test_late_request_of_a_cancelled_claim_loses_no_host() -> None:
    """A request that the provider processes a minute after its manager was killed, when its machine is deleted already."""
    found = changes_at_provider("cancel")

    assert len(found) == 5
    for at in found:
        live("cancel", Stop(at, late=60))
