"""The local network: both lists, and a restart for a fresh Mac only; for others it is pending, and said so."""

from __future__ import annotations

import pytest

from bramley.host.drift import Part
from bramley.host.steps.local_network import LocalNetwork
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP = LocalNetwork("m1")
CASES = {case.name: case for case in cases.load("local_network")}


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_the_lists_are_written_and_a_fresh_mac_is_restarted(case: Case) -> None:
    case.check(STEP)


@pytest.mark.parametrize(
    ("name", "pending"),
    [
        ("as wanted", False),
        ("a Mac with an agent is not restarted", True),
        ("a Mac with VMs is not restarted", True),
        ("lists that an older release wrote count from a start that is not known", True),
    ],
)
def test_a_restart_that_must_wait_is_told(name: str, pending: bool) -> None:
    told = STEP.pending(CASES[name].facts(STEP))

    assert told.startswith("RebootPending: ") is pending
    assert bool(told) is pending


def test_it_is_a_part_of_drift() -> None:
    wanted = STEP.wanted()

    assert wanted.part is Part.LOCAL_NETWORK
    assert len(wanted.stamp) == 64
