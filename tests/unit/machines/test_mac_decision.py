"""What is done for one Mac from its bootstrap to the point where it serves, and what its status reports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.base import errors
from bramley.machines.host_operations import State, Unprepared
from bramley.machines.mac_decision import decide
from bramley.machines.mac_draft import Decision, Observed, Problem, Settings
from tests.unit.machines.macs import (
    BOOTSTRAP,
    IMAGE,
    NEW,
    NOW,
    OLD,
    PERSON,
    UPDATE,
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
    operation_of,
    outdated,
    problem,
    running,
    seconds,
    seen,
    served,
    step_names,
    waits,
)

SETTINGS = Settings()
UNAVAILABLE = Problem(events.CREDENTIALS_UNAVAILABLE, "Secret default/s does not exist")


def decided(observed: Observed) -> Decision:
    return decide(observed, SETTINGS)


def test_new_mac_is_bootstrapped() -> None:
    decision = decided(seen())

    operation = operation_of(decision)
    assert (operation.kind, operation.host_config_hash) == (BOOTSTRAP, NEW)
    assert operation.may_reboot
    assert problem(decision.status, types.BOOTSTRAPPED) == events.BOOTSTRAPPING
    assert problem(decision.status, types.READY) == events.BOOTSTRAPPING
    assert (decision.status.phase, decision.status.ready) == ("Bootstrapping", False)


def test_running_bootstrap_shows_its_step_and_starts_no_other() -> None:
    decision = decided(seen(operation=running(step="agent (20/26)")))

    assert decision.steps == ()
    assert decision.status.step == "agent (20/26)"
    assert problem(decision.status, types.BOOTSTRAPPED) == events.BOOTSTRAPPING


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (running(UPDATE), events.UPDATING),
        (running(UPDATE, replace_tart=True), events.REPLACING_TART),
    ],
)
def test_running_update_is_reported_and_the_mac_serves(operation: State, reason: str) -> None:
    decision = decided(outdated(operation=operation))

    assert decision.steps == ()
    assert problem(decision.status, types.UP_TO_DATE) == reason
    assert problem(decision.status, types.READY) == ""
    assert decision.status.phase == "Ready"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.CommandFailed("exit 1"), events.BOOTSTRAP_FAILED),
        (errors.HostUnreachable("no route"), events.BOOTSTRAP_FAILED),
        (errors.HostKeyChanged("another key"), events.HOST_KEY_CHANGED),
        (ValueError("a secret"), events.BOOTSTRAP_FAILED),
    ],
)
def test_failed_bootstrap_is_counted_once_and_reported(error: Exception, reason: str) -> None:
    decision = decided(seen(operation=ended(error=error)))

    assert decision.steps == ()
    assert decision.status.bootstrap_attempts == 1
    assert decision.status.last_bootstrap_failure_time == NOW
    assert problem(decision.status, types.BOOTSTRAPPED) == reason
    assert event_reasons(decision) == [reason]
    assert waits(decision) == minutes(1)


def test_error_that_is_a_bug_is_not_shown() -> None:
    decision = decided(seen(operation=ended(error=ValueError("a secret"))))

    assert "a secret" not in str(decision)
    assert "ValueError" in decision.events[0].message


@pytest.mark.parametrize("kind", [BOOTSTRAP, UPDATE])
def test_attempt_that_could_not_begin_does_not_count(kind: Any) -> None:
    observed = seen() if kind is BOOTSTRAP else outdated()
    error = Unprepared(events.NODE_IDENTITY_UNAVAILABLE, "no token", after=seconds(30))
    life = Life(observed)

    decision = life.reconcile(operation=ended(kind, error))

    status = decision.status
    assert (status.bootstrap_attempts, status.tart_kubelet_update_attempts) == (0, 0)
    assert status.last_bootstrap_failure_time is None
    assert status.last_update_failure_time is None
    condition = types.BOOTSTRAPPED if kind is BOOTSTRAP else types.UP_TO_DATE
    assert problem(status, condition) == events.NODE_IDENTITY_UNAVAILABLE
    assert event_reasons(decision) == [events.NODE_IDENTITY_UNAVAILABLE]
    assert waits(decision) == seconds(30)
    assert waits(life.reconcile(postponed=seconds(29))) == seconds(29)
    assert life.steps == []
    life.reconcile(postponed=seconds(0))
    assert life.steps == [f"start {kind}"]


def test_busy_builder_is_no_event() -> None:
    error = Unprepared(events.BUILDER_BUSY, "the runner runs a job", after=minutes(1))

    decision = decided(outdated(mac=a_mac(builder=True), operation=ended(UPDATE, error)))

    assert decision.events == ()
    assert problem(decision.status, types.UP_TO_DATE) == events.BUILDER_BUSY


def test_unknown_configuration_is_reported_and_the_host_is_left_alone() -> None:
    decision = decided(seen(desired=UNAVAILABLE))

    assert decision.steps == ()
    assert problem(decision.status, types.BOOTSTRAPPED) == events.CREDENTIALS_UNAVAILABLE
    assert problem(decision.status, types.READY) == events.CREDENTIALS_UNAVAILABLE


def test_bootstrapped_host_is_not_updated_once_more() -> None:
    life = Life(seen(node=a_node(tainted=True), smoke_image=None))
    life.reconcile()
    life.reconcile(operation=ended())
    life.reconcile(node=a_node())
    life.reconcile(after=minutes(5))

    assert life.steps == ["start bootstrap", "remove taint"]
    assert life.status.host_config_hash == NEW
    assert life.status.tart_kubelet_binary_sha == "agent-sha"
    assert problem(life.status, types.UP_TO_DATE) == ""


def test_configuration_that_changed_during_the_bootstrap_is_applied_afterwards() -> None:
    life = Life(served(status=a_status(ready=True, host_config_hash=OLD)))

    decision = life.reconcile(operation=ended(host_config_hash="other"))

    assert step_names(decision.steps) == ["start update"]
    assert decision.status.host_config_hash == "other"


def test_failures_are_forgotten_when_the_host_is_proven_and_not_before() -> None:
    failures: dict[str, Any] = {
        "bootstrap_attempts": 5,
        "bootstrap_reboot_issued": True,
        "last_bootstrap_failure_time": NOW - minutes(2),
    }
    life = Life(seen(status=a_status(**failures), node=a_node(tainted=True)))

    def counted() -> dict[str, Any]:
        return {name: getattr(life.status, name) for name in failures}

    life.reconcile(operation=ended())
    assert problem(life.status, types.BOOTSTRAPPED) == ""
    assert counted() == failures
    life.reconcile(after=minutes(1), smoke_pod=a_pod())
    assert counted() == failures
    life.reconcile(after=minutes(1), smoke_pod=a_pod(ready=True))
    assert list(counted().values()) == [0, False, None]


@pytest.mark.parametrize(
    ("node", "smoke_pod", "missing", "reason"),
    [
        (None, None, types.NODE_READY, events.NODE_MISSING),
        (a_node(ready="False"), None, types.NODE_READY, events.NODE_NOT_READY),
        (a_node(ready="Unknown"), None, types.NODE_READY, events.NODE_NOT_READY),
        (a_node(tainted=True), None, types.PROVEN, events.SMOKE_VM_BOOTING),
        (a_node(tainted=True), a_pod(), types.PROVEN, events.SMOKE_VM_BOOTING),
        (a_node(tainted=True), a_pod(ready=True), None, ""),
    ],
)
def test_ready_waits_for_the_node_and_the_proof(
    node: Any, smoke_pod: Any, missing: str | None, reason: str
) -> None:
    status = a_status(host_config_hash=NEW)

    decision = decided(seen(status=status, node=node, smoke_pod=smoke_pod, operation=ended()))

    assert decision.status.ready is (missing is None)
    assert decision.status.phase == ("Ready" if missing is None else "Bootstrapping")
    assert problem(decision.status, types.READY) == reason
    if missing:
        assert problem(decision.status, missing) == reason


@pytest.mark.parametrize(
    ("changes", "phase", "reason"),
    [
        ({}, "Ready", ""),
        ({"node": None}, "Ready", events.NODE_MISSING),
        ({"node": a_node(ready="Unknown")}, "Ready", events.NODE_NOT_READY),
        ({"node": a_node(tainted=True)}, "Ready", events.SMOKE_VM_BOOTING),
        ({"operation": running()}, "Bootstrapping", events.BOOTSTRAPPING),
        ({"desired": UNAVAILABLE}, "Ready", ""),
        ({"status": a_served_status(failed_host_config_hash="other")}, "Ready", ""),
    ],
)
def test_mac_that_has_served_stays_ready(changes: dict[str, Any], phase: str, reason: str) -> None:
    decision = decided(served(**changes))

    assert decision.status.ready
    assert decision.status.phase == phase
    assert problem(decision.status, types.READY) == reason


def test_mac_at_rest_is_left_alone() -> None:
    life = Life(served())
    life.reconcile()
    at_rest = life.status

    decision = life.reconcile(after=minutes(5))

    assert (decision.steps, decision.events, decision.status) == ((), (), at_rest)
    assert waits(decision) == minutes(5)


def test_node_may_take_two_minutes_to_register() -> None:
    life = Life(seen(operation=ended()))

    assert waits(life.reconcile()) == minutes(2)
    assert waits(life.reconcile(after=seconds(90))) == seconds(30)
    assert life.steps == []


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


FOREIGN = a_node(provider_id="scw-applesilicon://fr-par-1/other", tainted=True, cordoned_by=PERSON)


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


OPERATIONS = st.sampled_from(
    [
        None,
        running(),
        running(UPDATE),
        ended(),
        ended(error=errors.CommandFailed("x")),
        ended(error=Unprepared("Reason", "text")),
        ended(UPDATE),
        ended(UPDATE, pending=("the network needs a reboot",)),
        ended(UPDATE, replace_tart=True),
        ended(UPDATE, errors.CommandFailed("x")),
    ]
)
NODES = st.sampled_from(
    [
        None,
        FOREIGN,
        a_node(),
        a_node(tainted=True),
        a_node(ready="False"),
        a_node(cordoned_by="manager"),
        a_node(cordoned_by="person"),
    ]
)
TYPES = st.sets(st.sampled_from([types.BOOTSTRAPPED, types.NODE_READY, types.PROVEN]))
OBSERVED = st.builds(
    lambda true, attempts, **fields: seen(
        status=a_status(*true, bootstrap_attempts=attempts, host_config_hash=OLD), **fields
    ),
    TYPES,
    st.sampled_from([0, 2, 3, 8]),
    operation=OPERATIONS,
    node=NODES,
    desired=st.sampled_from([OLD, NEW, UNAVAILABLE]),
    is_rented=st.booleans(),
    smoke_pod=st.sampled_from([None, a_pod(), a_pod(ready=True), a_pod(phase="Failed")]),
    smoke_image=st.sampled_from([None, IMAGE]),
    pods=st.sampled_from([(), (a_pod(),), (a_pod(runner=True),)]),
    annotations=st.sampled_from([frozenset(), frozenset({"tuist.dev/replace-tart"})]),
)


@given(OBSERVED)
def test_any_state_has_one_start_at_most_and_a_true_summary(observed: Observed) -> None:
    decision = decided(observed)

    steps = step_names(decision.steps)
    assert sum(step.startswith(("start", "swap")) or step == "reboot" for step in steps) <= 1
    state = observed.operation
    if state is not None and state.is_active:
        assert steps == []
    required = (types.PROVISIONED, types.BOOTSTRAPPED, types.NODE_READY, types.PROVEN)
    is_ready = all(problem(decision.status, each) == "" for each in required)
    assert (problem(decision.status, types.READY) == "") is is_ready
    assert decision.status.ready is is_ready
    assert waits(decision) > seconds(0)
    if observed.node is not None and observed.node.spec.unschedulable:
        assert "cordon" not in steps
    if not observed.is_rented:
        assert not {"reboot", "swap: BootstrapExhausted"} & set(steps)


def test_old_condition_of_the_existing_provider_is_kept_until_it_is_decided_again() -> None:
    """A status that was taken over in the middle of a failure waits its minute, too."""
    status = a_status(bootstrap_attempts=1, last_bootstrap_failure_time=NOW - seconds(10))
    failed = a_condition(types.BOOTSTRAPPED, events.BOOTSTRAP_FAILED)
    life = Life(seen(status=status))
    life.seen.status.conditions.append(failed)

    assert waits(life.reconcile()) == seconds(50)
    assert problem(life.status, types.BOOTSTRAPPED) == events.BOOTSTRAP_FAILED
