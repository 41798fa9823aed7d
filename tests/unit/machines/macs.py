"""Macs, their Nodes and operations, for tests of the decisions about them; and one Mac over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.api import conditions
from bramley.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodCondition, Taint
from bramley.api.mac_status import MachineCondition, MacStatus
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.names import labels
from bramley.api.pod import Container, PodSpec, PodStatus
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.host.progress import Report
from bramley.machines import mac_decision
from bramley.machines.drift import Member
from bramley.machines.host_leases import Holder
from bramley.machines.host_operations import Kind, Operation, Result, State
from bramley.machines.mac import Mac
from bramley.machines.mac_draft import Act, Decision, Evict, Observed, Settings, Start, Step, Swap
from bramley.machines.smoke_vm import SmokeImage
from bramley.runtime.outcome import CheckAgain

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROVIDER_ID = "scw-applesilicon://fr-par-1/1"
OLD, NEW = "old-hash", "new-hash"
IMAGE = SmokeImage("ghcr.io/example/runner:1", "default")
BOOTSTRAP, UPDATE = Kind.BOOTSTRAP, Kind.UPDATE
# Whose cordon a Node has.
MANAGER, PERSON = "manager", "person"


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def a_mac(name: str = "m", *, fleet: str = "f", builder: bool = False, **fields: Any) -> Mac:
    fields.setdefault("provider_id", PROVIDER_ID)
    runner = GHActionsRunner(gh_runner_version="2.330.0") if builder else None
    return Mac(
        holder=Holder("default", name, f"uid-{name}"),
        address="192.0.2.1",
        user="m1",
        fleet=fleet,
        builder=runner,
        **fields,
    )


def a_condition(
    type: str, problem: str = "", *, since: datetime = NOW - timedelta(hours=1)
) -> MachineCondition:
    """Return a condition that is true, or has a problem."""
    status: Any = "False" if problem else "True"
    return MachineCondition(type=type, status=status, reason=problem, last_transition_time=since)


def a_status(*true: str, **fields: Any) -> MacStatus:
    """Return the status of a Mac that has a host, and for which these conditions are true."""
    found = [a_condition(each) for each in (types.PROVISIONED, *true)]
    return MacStatus(conditions=found, **fields)


def a_served_status(**fields: Any) -> MacStatus:
    """Return the status of a Mac that serves and has the desired configuration."""
    true = (types.BOOTSTRAPPED, types.NODE_READY, types.PROVEN, types.UP_TO_DATE, types.READY)
    return a_status(*true, **{"ready": True, "phase": "Ready", "host_config_hash": NEW, **fields})


def a_node(
    name: str = "m",
    *,
    ready: str = "True",
    tainted: bool = False,
    cordoned_by: str = "",
    provider_id: str = PROVIDER_ID,
) -> Node:
    marks = {annotation_names.CORDONED_BY: "drain"} if cordoned_by == MANAGER else {}
    taints = [Taint(key=labels.UNPROVEN_TAINT, value="true", effect="NoSchedule")]
    condition = NodeCondition(type="Ready", status=ready)  # type: ignore[arg-type]
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-node-{name}", annotations=marks),
        spec=NodeSpec(
            provider_id=provider_id,
            unschedulable=bool(cordoned_by),
            taints=taints if tainted else [],
        ),
        status=NodeStatus(conditions=[condition]),
    )


def a_pod(
    name: str = "p",
    *,
    runner: bool = False,
    phase: str = "Running",
    ready: bool = False,
    deleting: bool = False,
    created: datetime | None = NOW,
    message: str = "",
) -> Pod:
    """Return a Pod; a smoke Pod is `ready` when its VM has booted."""
    found = [PodCondition(type="Ready", status="True")] if ready else []
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            labels={labels.RUNNER: "true"} if runner else {},
            creation_timestamp=created,
            deletion_timestamp=NOW if deleting else None,
        ),
        spec=PodSpec(containers=[Container(name="smoke", image=IMAGE.image)]),
        status=PodStatus(phase=phase, conditions=found, message=message),
    )


def seen(**fields: Any) -> Observed:
    """Return a new Mac without a Node, in a fleet of one host."""
    default: dict[str, Any] = {
        "mac": a_mac(),
        "status": a_status(),
        "now": NOW,
        "desired": NEW,
        "agent_sha": "agent-sha",
        "smoke_image": IMAGE,
        "fleet": [Member(name="m")],
    }
    return Observed(**{**default, **fields})


def served(**fields: Any) -> Observed:
    """Return a Mac that serves and has the desired configuration."""
    return seen(**{"status": a_served_status(), "node": a_node(), **fields})


def outdated(**fields: Any) -> Observed:
    """Return a Mac that serves with an old configuration."""
    fleet = [Member(name="m", is_outdated=True)]
    status = a_served_status(host_config_hash=OLD)
    return served(**{"status": status, "fleet": fleet, **fields})


def running(kind: Kind = BOOTSTRAP, step: str = "", **fields: Any) -> State:
    return State(Operation(kind, **{"host_config_hash": NEW, **fields}), step)


def ended(
    kind: Kind = BOOTSTRAP,
    error: Exception | None = None,
    *,
    pending: tuple[str, ...] = (),
    **fields: Any,
) -> State:
    """Return an operation that has succeeded, or failed with an error."""
    operation = Operation(kind, **{"host_config_hash": NEW, **fields})
    report = None if error else Report("m", pending=pending)
    return State(operation, result=Result(1, operation, report, error))


def step_names(steps: Iterable[Step]) -> list[str]:
    return [_step_name(each) for each in steps]


def _step_name(step: Step) -> str:
    match step:
        case Act():
            return step.kind
        case Start():
            return f"start {step.operation.kind}"
        case Evict():
            return f"evict {step.pod.name}"
        case Swap():
            return f"swap: {step.reason}"


def operation_of(decision: Decision) -> Operation:
    """Return the only operation that a decision starts."""
    [start] = [each for each in decision.steps if isinstance(each, Start)]
    return start.operation


def problem(status: MacStatus, type: str) -> str | None:
    """Return the reason of a condition that is not true, "" if it is true, None if it is absent."""
    found = conditions.find(status.conditions, type)
    return None if found is None else "" if found.status == "True" else found.reason


def event_reasons(decision: Decision) -> list[str]:
    return [each.reason for each in decision.events]


def waits(decision: Decision) -> timedelta:
    """Return after what time the Mac is looked at again."""
    assert isinstance(decision.outcome, CheckAgain)
    return decision.outcome.after


@dataclass
class Life:
    """One Mac over time: each status is written, and each result is acknowledged."""

    seen: Observed
    settings: Settings = field(default_factory=Settings)
    steps: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def status(self) -> MacStatus:
        return self.seen.status

    @property
    def phase(self) -> str:
        return self.status.phase or ""

    def reconcile(self, *, after: timedelta = timedelta(), **changes: Any) -> Decision:
        """Decide after this time, with these changes of what is observed."""
        self.seen = replace(self.seen, **{"now": self.seen.now + after, **changes})
        decision = mac_decision.decide(self.seen, self.settings)
        state = self.seen.operation
        is_acknowledged = state is None or state.result is not None
        operation = None if is_acknowledged else state
        self.seen = replace(self.seen, status=decision.status, operation=operation)
        self.steps += step_names(decision.steps)
        self.events += event_reasons(decision)
        return decision
