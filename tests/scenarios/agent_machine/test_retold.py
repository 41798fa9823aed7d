"""Stories that are worth telling every time: each is what some bug, put back, is found by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.scenarios.agent_machine import machine
from tests.scenarios.agent_machine.line import Condition, Mishap
from tests.scenarios.agent_machine.machine import Step
from tests.scenarios.agent_machine.steps import (
    Break,
    Connect,
    Create,
    Delete,
    Kill,
    MakeByHand,
    MustEnd,
    PushByHand,
    Reboot,
    RunByHand,
    SetTime,
    Spoil,
    SpoilRecord,
    Wait,
)

STORIES: Mapping[str, Sequence[Step]] = {
    "a finished Pod is deleted": [Create("a", "fails"), Wait(30.0), Delete("a")],
    "the Mac is rebooted under a VM": [Create("a", "works long"), Wait(30.0), Reboot()],
    "nobody hears of the finalizer": [
        Wait(10.0),
        Spoil(Mishap.UNHEARD),
        Create("a"),
        MustEnd("a", within=60.0),
    ],
    "somebody else's VM is here for long": [MakeByHand(), Create("a"), Wait(900.0)],
    "a push outlasts the collector's period": [
        MakeByHand(),
        PushByHand(leased=False),
        Create("a"),
        Wait(30.0),
        Break("pull finds no space"),
        Create("b", "tagged"),
        Wait(330.0),
    ],
    "the end cannot be told": [
        Create("a", "fails"),
        Wait(6.0),
        Connect(Condition.CUT),
        Wait(60.0),
        Kill(0),
        Wait(60.0),
    ],
    "a Pod is deleted while the end cannot be told": [
        Create("a", "works long"),
        Wait(30.0),
        Delete("a"),
        Wait(1.0),
        Connect(Condition.CUT),
        Wait(60.0),
    ],
    "others take the slots": [
        MakeByHand(),
        Create("a", "works long"),
        Create("b", "works long"),
        Wait(2.0),
        RunByHand(),
        Wait(60.0),
    ],
    "a killed agent's clone comes late": [
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
        SpoilRecord(60),
        Delete("a"),
        Wait(60.0),
    ],
    "the record of a clone that comes late is lost": [
        Create("a"),
        Wait(30.0),
        Break("clone is slow", 2),
        Create("b", "tagged"),
        Wait(30.0),
        SpoilRecord(0),
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
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    machine.tell(STORIES[name], seed=0)
