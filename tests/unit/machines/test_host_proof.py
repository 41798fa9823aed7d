"""The proof that a host works: by a VM that boots on it, or by the runner of a builder."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.machines import host_proof
from tests.unit.machines.macs import (
    NEW,
    NOW,
    Life,
    a_condition,
    a_mac,
    a_node,
    a_pod,
    a_served_status,
    a_status,
    ended,
    event_reasons,
    minutes,
    problem,
    seconds,
    seen,
    step_names,
    waits,
)

NEW_NODE = a_node(tainted=True)
TIMEOUT = minutes(30)


def bootstrapped(**fields: Any) -> Life:
    """Return a Mac that has just been bootstrapped, and whose new Node is Ready."""
    life = Life(seen(**{"node": NEW_NODE, "operation": ended(), **fields}))
    life.reconcile()
    return life


def test_vm_is_booted_and_then_the_taint_is_removed_before_the_pod() -> None:
    life = bootstrapped()
    assert life.steps == ["create smoke Pod"]
    assert problem(life.status, types.PROVEN) == events.SMOKE_VM_BOOTING

    life.reconcile(after=minutes(1), smoke_pod=a_pod())
    assert life.steps == ["create smoke Pod"]

    decision = life.reconcile(after=minutes(1), smoke_pod=a_pod(ready=True))
    assert step_names(decision.steps) == ["remove taint", "delete smoke Pod"]
    assert events.PROVEN in event_reasons(decision)
    assert problem(life.status, types.PROVEN) == ""

    assert life.reconcile(node=a_node(), smoke_pod=a_pod(ready=True, deleting=True)).steps == ()
    assert life.reconcile(smoke_pod=None).steps == ()


def test_pod_that_is_left_over_is_deleted() -> None:
    life = bootstrapped(node=a_node(), status=a_status(types.PROVEN), smoke_pod=a_pod(ready=True))

    assert life.steps == ["delete smoke Pod"]


@pytest.mark.parametrize(
    ("pod", "after"),
    [
        (a_pod(phase="Failed", message="no space left"), minutes(1)),
        (a_pod(phase="Succeeded"), minutes(1)),
        (a_pod(), TIMEOUT),
    ],
)
def test_failed_vm_is_a_failed_attempt(pod: Any, after: Any) -> None:
    life = bootstrapped()

    decision = life.reconcile(after=after, smoke_pod=pod)

    assert step_names(decision.steps) == ["delete smoke Pod"]
    assert event_reasons(decision) == [events.SMOKE_VM_FAILED]
    assert life.status.bootstrap_attempts == 1
    assert life.status.last_bootstrap_failure_time == life.seen.now
    assert problem(life.status, types.BOOTSTRAPPED) == events.SMOKE_VM_FAILED
    assert problem(life.status, types.READY) == events.SMOKE_VM_FAILED
    assert not life.status.ready


def test_failed_vm_is_followed_by_a_bootstrap_before_another_vm() -> None:
    life = bootstrapped()
    life.reconcile(after=minutes(1), smoke_pod=a_pod(phase="Failed"))
    assert waits(life.reconcile(smoke_pod=a_pod(phase="Failed", deleting=True))) == minutes(1)
    assert waits(life.reconcile(after=seconds(59), smoke_pod=None)) == seconds(1)
    assert life.steps == ["create smoke Pod", "delete smoke Pod"]

    life.reconcile(after=seconds(1))
    life.reconcile(operation=ended())

    assert life.steps[2:] == ["start bootstrap", "create smoke Pod"]
    assert life.status.bootstrap_attempts == 1


def test_next_vm_waits_until_the_last_pod_is_gone() -> None:
    life = bootstrapped(smoke_pod=a_pod(ready=True, deleting=True))

    assert life.steps == []
    life.reconcile(smoke_pod=None)
    assert life.steps == ["create smoke Pod"]


def test_host_whose_vms_never_boot_is_rebooted_and_released() -> None:
    life = bootstrapped()
    for _ in range(8):
        life.reconcile(smoke_pod=a_pod(phase="Failed"))
        if "reboot" in step_names(life.reconcile(smoke_pod=None).steps):
            life.reconcile(status=replace(life.status, bootstrap_reboot_issued=True))
        if "start bootstrap" in step_names(life.reconcile(after=minutes(2)).steps):
            life.reconcile(operation=ended())

    assert life.steps.count("create smoke Pod") == 8
    assert life.steps.count("reboot") == 1
    assert life.steps.count("start bootstrap") == 7
    assert life.steps[-1] == "swap: BootstrapExhausted"


def test_host_without_an_image_to_boot_is_proven() -> None:
    life = bootstrapped(smoke_image=None)

    assert life.steps == ["remove taint"]
    found = conditions.find(life.status.conditions, types.PROVEN)
    assert found is not None
    assert (found.status, found.reason) == ("True", events.NO_SMOKE_IMAGE)
    assert life.status.ready


@pytest.mark.parametrize("builder", [True, False])
def test_node_of_the_existing_provider_is_taken_over(builder: bool) -> None:
    life = Life(
        seen(
            mac=a_mac(builder=builder),
            status=a_status(types.BOOTSTRAPPED, ready=True, phase="Ready", host_config_hash=NEW),
            node=a_node(),
        )
    )

    life.reconcile()

    assert (life.steps, life.events) == ([], [events.TAKEN_OVER])
    assert problem(life.status, types.PROVEN) == ""
    assert problem(life.status, types.READY) == ""


def test_node_that_is_registered_again_is_proven_again() -> None:
    life = Life(seen(status=a_served_status(), node=NEW_NODE))

    life.reconcile()

    assert life.steps == ["create smoke Pod"]
    assert life.status.ready
    assert problem(life.status, types.READY) == events.SMOKE_VM_BOOTING


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_node_that_is_not_ready_is_not_proven(ready: str) -> None:
    life = bootstrapped(node=a_node(tainted=True, ready=ready), smoke_pod=a_pod(ready=True))

    assert life.steps == []
    assert problem(life.status, types.PROVEN) is None


def a_builder(**fields: Any) -> Life:
    return bootstrapped(mac=a_mac(builder=True), **fields)


def test_builder_boots_no_vm_and_waits_for_its_runner() -> None:
    life = a_builder(is_runner_online=False)
    assert problem(life.status, types.PROVEN) == events.RUNNER_OFFLINE
    life.reconcile(after=TIMEOUT - seconds(1))
    assert life.steps == []
    assert life.status.bootstrap_attempts == 0

    decision = life.reconcile(is_runner_online=True)

    assert step_names(decision.steps) == ["remove taint"]
    assert events.PROVEN in event_reasons(decision)
    assert life.status.ready


def test_builder_whose_runner_stays_offline_is_a_failed_attempt() -> None:
    life = a_builder(is_runner_online=False)

    decision = life.reconcile(after=TIMEOUT)

    assert event_reasons(decision) == [events.RUNNER_OFFLINE]
    assert life.status.bootstrap_attempts == 1
    assert problem(life.status, types.BOOTSTRAPPED) == events.RUNNER_OFFLINE
    life.reconcile(after=minutes(1))
    assert life.steps == ["start bootstrap"]
    life.reconcile(after=minutes(1), operation=ended())
    life.reconcile(after=TIMEOUT - seconds(1))
    assert life.status.bootstrap_attempts == 1


def test_forge_that_does_not_answer_is_no_failure_of_the_host() -> None:
    life = a_builder(is_runner_online=None)

    life.reconcile(after=TIMEOUT * 3)

    assert life.status.bootstrap_attempts == 0
    assert problem(life.status, types.PROVEN) == events.RUNNER_OFFLINE


def test_builder_whose_node_is_registered_again_has_the_time_of_a_new_one() -> None:
    """Nothing is known about its runner at first, because the runner of a proven builder is not looked up."""
    life = Life(seen(mac=a_mac(builder=True), status=a_served_status(), node=NEW_NODE))
    life.reconcile()
    assert host_proof.needs_runner(life.seen.mac, life.status)

    life.reconcile(after=TIMEOUT - seconds(1), is_runner_online=False)
    assert life.status.bootstrap_attempts == 0
    life.reconcile(after=seconds(1))
    assert life.status.bootstrap_attempts == 1


@pytest.mark.parametrize(
    ("builder", "true", "expected"),
    [
        (True, (types.BOOTSTRAPPED,), True),
        (True, (), False),
        (True, (types.BOOTSTRAPPED, types.PROVEN), False),
        (False, (types.BOOTSTRAPPED,), False),
    ],
)
def test_when_the_runner_is_looked_up(builder: bool, true: tuple[str, ...], expected: bool) -> None:
    assert host_proof.needs_runner(a_mac(builder=builder), a_status(*true)) is expected


def test_proof_of_an_earlier_node_does_not_count_as_a_wait() -> None:
    status = a_status(types.BOOTSTRAPPED)
    status.conditions.append(a_condition(types.PROVEN, events.RUNNER_OFFLINE, since=NOW))
    life = Life(seen(mac=a_mac(builder=True), status=status, node=NEW_NODE))

    life.reconcile(is_runner_online=False)

    assert life.status.bootstrap_attempts == 0
