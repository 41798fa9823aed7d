"""The local network: both lists, and a reboot of a fresh Mac only; on other Macs the reboot is reported as pending."""

from __future__ import annotations

import pytest

from bramley.host.drift import Part
from bramley.host.steps.local_network import LocalNetwork
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP = LocalNetwork("m1")
CASES = {case.name: case for case in cases.load("local_network")}


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)


@pytest.mark.parametrize(
    ("name", "pending"),
    [
        ("converged", ""),
        ("Mac with an agent is not rebooted", "RebootPending"),
        ("Mac with VMs is not rebooted", "RebootPending"),
        ("Mac with an agent, whose boot session was never recorded", ""),
        ("Mac with an agent, whose boot session was recorded late", ""),
        ("macOS that prompts and does not support the list", ""),
        ("macOS that does not support the list, not rebooted since", ""),
        ("macOS that supports the list", ""),
        ("macOS that does not prompt", ""),
    ],
)
def test_pending_reboot_is_reported(name: str, pending: str) -> None:
    reported = STEP.pending(CASES[name].facts(STEP))

    assert reported.partition(":")[0] == pending


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("converged", ""),
        ("Mac with an agent is not rebooted", ""),
        ("Mac with an agent, whose boot session was never recorded", "RebootAdvised"),
        ("Mac with an agent, whose boot session was recorded late", "RebootAdvised"),
        ("Mac with an agent that was rebooted", ""),
        ("macOS that prompts and does not support the list", "UpdateAdvised"),
        ("macOS that supports the list", ""),
        ("macOS that does not prompt", ""),
    ],
)
def test_what_only_people_decide_is_advised_and_not_pending(name: str, advice: str) -> None:
    reported = STEP.advice(CASES[name].facts(STEP))

    assert reported.partition(":")[0] == advice


def test_desired_part_has_a_stamp() -> None:
    desired = STEP.desired()

    assert desired.part is Part.LOCAL_NETWORK
    assert len(desired.stamp) == 64
