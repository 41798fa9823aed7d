"""Updates of one host that serves: when they start, how they fail, and what waits until the host runs no VM."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.base import errors
from bramley.machines import drift, host_update
from bramley.machines.drift import Member
from bramley.machines.host_operations import Kind
from bramley.machines.mac_draft import Problem, Settings
from tests.unit.machines.macs import (
    MANAGER,
    NEW,
    OLD,
    PERSON,
    UPDATE,
    Life,
    a_node,
    a_pod,
    a_served_status,
    ended,
    event_reasons,
    minutes,
    operation_of,
    outdated,
    problem,
    running,
    seconds,
    served,
    step_names,
    waits,
)

REPLACE = frozenset({annotation_names.REPLACE_TART})
FAILED = errors.CommandFailed("exit 1")
JOB = a_pod("job", runner=True)


def failed(life: Life, times: int = 1) -> None:
    """Let updates fail, each as soon as it may begin."""
    for _ in range(times):
        assert step_names(life.reconcile(after=minutes(1)).steps) == ["start update"]
        life.reconcile(operation=ended(UPDATE, FAILED, host_config_hash=life.seen.desired))


def test_host_with_an_old_configuration_is_updated_without_a_reboot() -> None:
    life = Life(outdated())

    operation = operation_of(life.reconcile())

    assert (operation.kind, operation.host_config_hash) == (Kind.UPDATE, NEW)
    assert (operation.may_reboot, operation.replace_tart) == (False, False)
    assert problem(life.status, types.UP_TO_DATE) == events.UPDATING
    decision = life.reconcile(operation=ended(UPDATE, may_reboot=False))
    assert decision.steps == ()
    assert event_reasons(decision) == [events.AGENT_ROLLED]
    assert problem(life.status, types.UP_TO_DATE) == ""
    assert life.status.host_config_hash == NEW
    assert life.status.tart_kubelet_binary_sha == "agent-sha"


def test_host_without_a_hash_is_updated() -> None:
    life = Life(outdated(status=a_served_status(host_config_hash="")))

    assert step_names(life.reconcile().steps) == ["start update"]


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_host_whose_node_is_not_ready_is_updated_because_that_may_repair_it(ready: str) -> None:
    life = Life(outdated(node=a_node(ready=ready)))

    assert step_names(life.reconcile().steps) == ["start update"]


def test_host_whose_agent_does_not_report_is_looked_at_every_ten_minutes() -> None:
    """Its tokens may have expired."""
    life = Life(served())

    assert life.reconcile(node=a_node(ready="Unknown")).steps == ()
    assert life.reconcile(after=minutes(9)).steps == ()
    assert operation_of(life.reconcile(after=minutes(1))).may_reboot is False
    life.reconcile(after=minutes(1), operation=ended(UPDATE, FAILED))
    assert life.reconcile(after=minutes(8)).steps == ()
    assert step_names(life.reconcile(after=minutes(2)).steps) == ["start update"]
    life.reconcile(operation=ended(UPDATE))
    assert life.reconcile(after=minutes(9)).steps == ()
    assert life.reconcile(after=minutes(9), node=a_node()).steps == ()
    assert life.phase == "Ready"


def test_host_whose_agent_reports_a_problem_is_not_looked_at() -> None:
    life = Life(served(node=a_node(ready="False")))

    assert life.reconcile().steps == ()
    assert life.reconcile(after=minutes(60)).steps == ()


def test_host_that_never_served_is_not_updated() -> None:
    life = Life(outdated(status=a_served_status(ready=False), node=a_node(ready="False")))

    assert life.reconcile().steps == ()


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([Member(name="a", is_outdated=True)], events.WAITING_FOR_CANARY),
        ([Member(name="a", is_outdated=True, is_terminal=True)], events.CANARY_FAILED),
        (
            [Member(name="a"), Member(name="b", is_updating=True)],
            events.WAITING_FOR_SLOT,
        ),
    ],
)
def test_host_waits_for_its_fleet(others: list[Member], reason: str) -> None:
    life = Life(outdated(fleet=[*others, Member(name="m", is_outdated=True)]))

    decision = life.reconcile()

    assert decision.steps == ()
    assert problem(life.status, types.UP_TO_DATE) == reason
    assert waits(decision) == minutes(1)
    assert (life.status.ready, life.phase) == (True, "Ready")


def test_failed_update_is_tried_again_after_a_minute() -> None:
    life = Life(outdated())
    failed(life)

    assert life.status.tart_kubelet_update_attempts == 1
    assert life.status.last_update_failure_time == life.seen.now
    assert problem(life.status, types.UP_TO_DATE) == events.AGENT_ROLL_FAILED
    assert waits(life.reconcile()) == minutes(1)
    assert waits(life.reconcile(after=seconds(59))) == seconds(1)
    assert step_names(life.reconcile(after=seconds(1)).steps) == ["start update"]


def test_update_that_succeeds_forgets_the_failures() -> None:
    life = Life(outdated())
    failed(life, 4)
    life.reconcile(after=minutes(1))

    life.reconcile(operation=ended(UPDATE))

    assert life.status.tart_kubelet_update_attempts == 0
    assert life.status.last_update_failure_time is None
    assert problem(life.status, types.UP_TO_DATE) == ""


def test_five_failures_are_terminal_and_the_mac_still_serves() -> None:
    life = Life(outdated())
    failed(life, 4)
    assert life.phase == "Ready"
    failed(life)

    assert life.status.failed_host_config_hash == NEW
    assert life.events[-1] == events.UPDATE_EXCEEDED_RETRIES
    assert problem(life.status, types.UP_TO_DATE) == events.UPDATE_EXCEEDED_RETRIES
    assert (life.phase, life.status.ready) == ("Failed", True)
    assert problem(life.status, types.READY) == ""
    life.reconcile(after=minutes(30) - seconds(1))
    assert life.steps == ["start update"] * 5
    assert problem(life.status, types.UP_TO_DATE) == events.UPDATE_EXCEEDED_RETRIES


def test_terminal_failure_is_lifted_after_half_an_hour() -> None:
    life = Life(outdated())
    failed(life, 5)

    decision = life.reconcile(after=minutes(30))

    assert step_names(decision.steps) == ["start update"]
    assert event_reasons(decision) == [events.AGENT_ROLL_RETRIED]
    assert (life.phase, life.status.tart_kubelet_update_attempts) == ("Ready", 0)
    life.reconcile(operation=ended(UPDATE, FAILED))
    assert life.phase == "Ready"
    failed(life, 4)
    assert life.phase == "Failed"


def test_terminal_failure_is_lifted_by_another_configuration() -> None:
    life = Life(outdated())
    failed(life, 5)

    decision = life.reconcile(desired="newer-hash")

    assert operation_of(decision).host_config_hash == "newer-hash"
    assert event_reasons(decision) == [events.AGENT_ROLL_RETRIED]
    assert life.status.failed_host_config_hash == ""


def test_terminal_failure_ends_when_the_old_configuration_is_desired_again() -> None:
    life = Life(outdated())
    failed(life, 5)

    life.reconcile(desired=OLD)

    assert life.steps == ["start update"] * 5
    assert (life.phase, life.status.failed_host_config_hash) == ("Ready", "")
    assert problem(life.status, types.UP_TO_DATE) == ""


def test_budget_of_zero_is_unlimited() -> None:
    life = Life(outdated(), Settings(drift=drift.Settings(max_attempts=0)))

    failed(life, 20)

    assert life.phase == "Ready"


def test_configuration_that_is_unknown_is_reported_while_the_mac_serves() -> None:
    life = Life(outdated(desired=Problem(events.INVALID_CONFIGURATION, "bad")))

    assert life.reconcile().steps == ()
    assert problem(life.status, types.UP_TO_DATE) == events.INVALID_CONFIGURATION
    assert problem(life.status, types.READY) == ""


@pytest.mark.parametrize(
    ("pending", "annotations", "expected"),
    [("", frozenset(), False), ("network", frozenset(), True), ("", REPLACE, True)],
)
def test_what_needs_an_idle_host(pending: str, annotations: Any, expected: bool) -> None:
    status = a_served_status(reboot_pending=pending)

    assert host_update.needs_drain(status, annotations) is expected


def test_reboot_that_is_pending_waits_for_jobs_and_is_tried_once() -> None:
    life = Life(outdated())
    life.reconcile()
    done = ended(UPDATE, pending=("the network list needs a reboot",), may_reboot=False)
    life.reconcile(operation=done)
    assert life.status.reboot_pending == "the network list needs a reboot"
    assert problem(life.status, types.UP_TO_DATE) == events.REBOOT_PENDING
    assert life.steps == ["start update", "cordon"]

    life.reconcile(node=a_node(cordoned_by=MANAGER), pods=[JOB, a_pod("other")])
    life.reconcile(after=minutes(90), pods=[JOB])
    assert life.steps[2:] == ["evict other"]

    operation = operation_of(life.reconcile(after=minutes(1), pods=[]))
    assert (operation.may_reboot, operation.replace_tart) == (True, False)
    life.reconcile(operation=running(UPDATE))
    life.reconcile(operation=ended(UPDATE, pending=("still pending",), may_reboot=True))
    life.reconcile(node=a_node())
    # After a reboot another one would not help either.
    assert life.status.reboot_pending == ""
    assert life.steps[3:] == ["start update", "uncordon"]
    assert problem(life.status, types.UP_TO_DATE) == ""


def test_maintenance_begins_three_seconds_after_the_cordon() -> None:
    life = Life(served(annotations=REPLACE))
    assert waits(life.reconcile()) == seconds(3)

    life.reconcile(after=seconds(2), node=a_node(cordoned_by=MANAGER))
    assert life.steps == ["cordon"]
    life.reconcile(after=seconds(1))
    assert life.steps == ["cordon", "start update"]


def replaced(life: Life) -> None:
    """Let Tart be replaced on a host whose Node has its cordon."""
    life.reconcile()
    life.reconcile(after=seconds(3))
    life.reconcile(after=minutes(1), operation=ended(UPDATE, replace_tart=True))


def test_tart_is_replaced_once_per_request() -> None:
    life = Life(served(annotations=REPLACE, node=a_node(cordoned_by=MANAGER)))

    replaced(life)

    assert life.steps == ["start update", "remove annotation", "uncordon"]
    assert events.TART_REPLACED in life.events
    assert life.status.drain_start_time is None
    life.reconcile(annotations=frozenset(), node=a_node())
    assert len(life.steps) == 3
    assert problem(life.status, types.UP_TO_DATE) == ""


def test_cordon_of_a_person_is_never_removed() -> None:
    life = Life(served(annotations=REPLACE, node=a_node(cordoned_by=PERSON)))

    replaced(life)
    life.reconcile(after=minutes(5), annotations=frozenset())

    assert life.steps == ["start update", "remove annotation"]
    assert life.status.drain_start_time is None


def test_next_maintenance_of_a_node_that_a_person_has_cordoned_is_drained_as_well() -> None:
    life = Life(served(annotations=REPLACE, node=a_node(cordoned_by=PERSON)))
    replaced(life)
    life.reconcile(after=minutes(5), annotations=frozenset())

    # The Pods are read only once it is known that the host must be idle.
    done = ended(UPDATE, pending=("reboot",), may_reboot=False)
    life.reconcile(after=minutes(60), operation=done)
    life.reconcile(after=seconds(3), pods=[JOB])
    assert life.steps[2:] == []
    life.reconcile(after=seconds(1), pods=[])
    assert life.steps[2:] == ["start update"]


def test_mark_of_the_manager_is_removed_from_a_node_that_a_person_has_uncordoned() -> None:
    node = a_node(cordoned_by=MANAGER)
    life = Life(served(node=replace(node, spec=replace(node.spec, unschedulable=False))))

    life.reconcile()

    assert life.steps == ["uncordon"]


def test_withdrawn_request_ends_the_drain() -> None:
    life = Life(served(annotations=REPLACE))
    life.reconcile()
    life.reconcile(after=minutes(1), node=a_node(cordoned_by=MANAGER), pods=[JOB])

    life.reconcile(annotations=frozenset())

    assert life.steps == ["cordon", "uncordon"]
    assert life.status.drain_start_time is None


def test_maintenance_that_fails_for_good_ends_the_drain() -> None:
    life = Life(served(annotations=REPLACE, node=a_node(cordoned_by=MANAGER)))
    life.reconcile()
    for _ in range(5):
        life.reconcile(after=minutes(1))
        life.reconcile(operation=ended(UPDATE, FAILED, replace_tart=True))

    assert life.steps == [*["start update"] * 5, "uncordon"]
    assert life.phase == "Failed"


def test_drained_host_keeps_its_turn() -> None:
    """Hosts that became unavailable meanwhile do not leave it cordoned and waiting."""
    fleet = [Member(name="m", is_available=False), Member(name="a", is_available=False)]
    life = Life(served(annotations=REPLACE, node=a_node(cordoned_by=MANAGER), fleet=fleet))
    life.reconcile()

    life.reconcile(after=seconds(3))

    assert life.steps == ["start update"]


def test_maintenance_waits_for_its_turn_before_the_cordon() -> None:
    fleet = [Member(name="m"), Member(name="a", is_available=False)]
    life = Life(served(annotations=REPLACE, fleet=fleet))

    life.reconcile()

    assert life.steps == []
    assert problem(life.status, types.UP_TO_DATE) == events.WAITING_FOR_SLOT
