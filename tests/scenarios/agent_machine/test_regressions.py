"""Scenarios that run every time: each finds a known bug if it is put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.scenarios.agent_machine import machine
from tests.scenarios.agent_machine.machine import Step
from tests.scenarios.agent_machine.network import LinkState, WriteFault
from tests.scenarios.agent_machine.steps import (
    Break,
    Connect,
    Create,
    CreateManually,
    DamageRecord,
    Delete,
    FailWrites,
    Kill,
    MustEnd,
    PushManually,
    Reboot,
    RunManually,
    SetTime,
    Wait,
)

SCENARIOS: Mapping[str, Sequence[Step]] = {
    "a finished Pod is deleted": [Create("a", "fails"), Wait(30.0), Delete("a")],
    "the Mac is rebooted under a VM": [Create("a", "works long"), Wait(30.0), Reboot()],
    "no watch event for the finalizer": [
        Wait(10.0),
        FailWrites(WriteFault.UNWATCHED),
        Create("a"),
        MustEnd("a", within=60.0),
    ],
    "a manual VM stays for long": [CreateManually(), Create("a"), Wait(900.0)],
    "a push outlasts the collector's period": [
        CreateManually(),
        PushManually(leased=False),
        Create("a"),
        Wait(30.0),
        Break("pull finds no space"),
        Create("b", "tagged"),
        Wait(330.0),
    ],
    "the end cannot be published": [
        Create("a", "fails"),
        Wait(6.0),
        Connect(LinkState.DOWN),
        Wait(60.0),
        Kill(0),
        Wait(60.0),
    ],
    "a Pod is deleted while the end cannot be published": [
        Create("a", "works long"),
        Wait(30.0),
        Delete("a"),
        Wait(1.0),
        Connect(LinkState.DOWN),
        Wait(60.0),
    ],
    "manual VMs take the slots": [
        CreateManually(),
        Create("a", "works long"),
        Create("b", "works long"),
        Wait(2.0),
        RunManually(),
        Wait(60.0),
    ],
    "a killed agent's clone finishes late": [
        Create("a"),
        Wait(30.0),
        Delete("a"),
        Wait(30.0),
        Break("clone is slow"),
        Create("b"),
        Wait(2.0),
        Kill(0),
        Delete("b"),
        Wait(120.0),
    ],
    "a Pod is deleted whose record is lost": [
        Create("a", "works long"),
        Wait(30.0),
        DamageRecord(60),
        Delete("a"),
        Wait(60.0),
    ],
    "the record of a clone that finishes late is lost": [
        Create("a"),
        Wait(30.0),
        Break("clone is slow", 2),
        Create("b", "tagged"),
        Wait(30.0),
        DamageRecord(0),
        Wait(120.0),
    ],
    "the clock is set while Pods run and wait": [
        Create("a", "is late"),
        Create("b", "works long"),
        Create("c", "tagged"),
        Wait(30.0),
        SetTime(30.0),
        Wait(10.0),
        Kill(0),
        Wait(10.0),
        SetTime(-1.0),
        Delete("b"),
        Wait(60.0),
    ],
    "a guest outlives its tart": [
        Break("guest outlives its tart"),
        Create("a", "works long"),
        Wait(20.0),
        Delete("a", 0),
        Create("b"),
        Create("c"),
        Wait(60.0),
    ],
    "a claim of an earlier boot is dated in the future": [
        Create("a", "works"),
        Wait(0.2),
        SetTime(-1.0),
        Reboot(),
        Delete("a", 0),
    ],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_recorded_scenario_violates_nothing(name: str) -> None:
    machine.run(SCENARIOS[name], seed=0)
