"""A leader that is killed or suspended at any of its calls: the next one continues, and nothing is shared, lost or left behind."""

from __future__ import annotations

import pytest

from tests.scenarios.machines.leaders import Stop, suspended
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
        live(name, suspended(at))


@pytest.mark.parametrize("label", ["before", "after"])
def test_leader_that_continues_after_a_deletion_leaves_no_identity(label: str) -> None:
    """An identity is many objects, and its first ones may be written after the successor has revoked it."""
    end = "/clusterroles"
    found = enumerate(checkpoints("cancel"), 1)
    at = next(number for number, call in found if call.startswith(label) and call.endswith(end))

    live("cancel", Stop(at, seconds=400))


def test_late_request_of_a_cancelled_claim_loses_no_host() -> None:
    """A request that the provider processes a minute after its manager was killed, when its machine is deleted already."""
    found = changes_at_provider("cancel")

    assert len(found) == 5
    for at in found:
        live("cancel", Stop(at, late=60))
