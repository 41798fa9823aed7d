"""Nodes that are missing, not Ready, or of another host, and what that means for the Mac."""

from __future__ import annotations

from typing import Any

import pytest

from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.base import errors
from bramley.machines.mac_decision import decide
from bramley.machines.mac_draft import Decision, Observed, Settings
from tests.unit.machines.macs import (
    BOOTSTRAP,
    FOREIGN,
    Life,
    a_node,
    a_pod,
    ended,
    event_reasons,
    minutes,
    operation_of,
    outdated,
    problem,
    seconds,
    seen,
    served,
    step_names,
    waits,
)

SETTINGS = Settings()


def decided(observed: Observed) -> Decision:
    return decide(observed, SETTINGS)


def test_node_may_take_two_minutes_to_register() -> None:
    life = Life(seen(operation=ended()))

    assert waits(life.reconcile()) == minutes(2)
    assert waits(life.reconcile(after=seconds(90))) == seconds(30)
    assert life.steps == []


@pytest.mark.parametrize(
    ("node", "limit", "reason"),
    [
        (None, minutes(2), events.NODE_MISSING),
        (a_node(ready="False", tainted=True), minutes(30), events.NODE_NOT_READY),
    ],
)
def test_new_host_whose_node_never_becomes_ready_is_a_failed_attempt(
    node: Any, limit: Any, reason: str
) -> None:
    life = Life(seen(operation=ended(), node=node))
    life.reconcile()
    life.reconcile(after=limit - seconds(1))
    assert life.status.bootstrap_attempts == 0

    decision = life.reconcile(after=seconds(1))

    assert event_reasons(decision) == [reason]
    assert life.status.bootstrap_attempts == 1
    assert problem(life.status, types.BOOTSTRAPPED) == reason
    assert waits(decision) == minutes(1)
    life.reconcile(after=seconds(59))
    assert life.steps == []
    assert operation_of(life.reconcile(after=seconds(1))).may_reboot


def test_host_without_its_node_is_verified_without_a_reboot() -> None:
    life = Life(served())
    life.reconcile()
    assert waits(life.reconcile(after=minutes(1), node=None)) == minutes(2)
    assert waits(life.reconcile(after=seconds(119))) == seconds(1)
    assert life.steps == []

    decision = life.reconcile(after=seconds(1))

    operation = operation_of(decision)
    assert (operation.kind, operation.may_reboot) == (BOOTSTRAP, False)
    assert not operation.replace_tart
    assert events.NODE_MISSING in event_reasons(decision)
    assert decision.status.ready


def test_healthy_host_is_verified_again_and_again_and_never_released() -> None:
    life = Life(served(node=None))
    for _ in range(60):
        decision = life.reconcile(after=minutes(1))
        if decision.steps:
            life.reconcile(operation=ended())

    assert set(life.steps) == {"start bootstrap"}
    assert life.steps.count("start bootstrap") > 10
    assert life.status.bootstrap_attempts == 0


def test_host_that_fails_without_its_node_is_recovered() -> None:
    life = Life(served(node=None))
    for _ in range(20):
        if "start bootstrap" in step_names(life.reconcile(after=minutes(1)).steps):
            life.reconcile(operation=ended(error=errors.HostUnreachable("no route")))

    assert "reboot" in life.steps
    assert "swap: BootstrapExhausted" in life.steps


@pytest.mark.parametrize("base", [seen, served, outdated])
@pytest.mark.parametrize("annotation", ["", "tuist.dev/replace-tart"])
def test_node_of_another_host_is_reported_and_left_alone(base: Any, annotation: str) -> None:
    observed = base(node=FOREIGN, annotations=frozenset({annotation}))
    life = Life(observed)
    if base is seen:
        life.reconcile(operation=ended())

    decision = life.reconcile(after=minutes(3), smoke_pod=a_pod(ready=True), pods=[a_pod()])

    assert decision.steps == ()
    assert problem(decision.status, types.NODE_READY) == events.NAME_IN_USE
    assert problem(decision.status, types.READY) == events.NAME_IN_USE
    assert decision.status.ready is (base is not seen)


def test_node_without_an_id_is_its_own() -> None:
    decision = decided(served(node=a_node(provider_id="")))

    assert problem(decision.status, types.NODE_READY) == ""
