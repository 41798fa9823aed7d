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
        ("as wanted", ""),
        ("a Mac with an agent is not restarted", "RebootPending"),
        ("a Mac with VMs is not restarted", "RebootPending"),
        ("lists that an older release wrote count from a start that is not known", "RebootPending"),
        ("a macOS that asks and does not know the list", ""),
        ("one with an agent that was not restarted since", ""),
        ("a macOS that knows the list", ""),
        ("a macOS that does not ask", ""),
    ],
)
def test_what_the_list_waits_for_is_told(name: str, pending: str) -> None:
    told = STEP.pending(CASES[name].facts(STEP))

    assert told.partition(":")[0] == pending


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("as wanted", ""),
        ("a macOS that asks and does not know the list", "UpdateAdvised"),
        ("a macOS that knows the list", ""),
        ("a macOS that does not ask", ""),
    ],
)
def test_a_macos_that_does_not_know_the_list_is_told_and_waited_for_by_nobody(
    name: str, advice: str
) -> None:
    told = STEP.advice(CASES[name].facts(STEP))

    assert told.partition(":")[0] == advice


def test_it_is_a_part_of_drift() -> None:
    wanted = STEP.wanted()

    assert wanted.part is Part.LOCAL_NETWORK
    assert len(wanted.stamp) == 64
