"""What is to be done for one Machine, and its status. Pure.

A Machine is provisioned once its infrastructure object is ready, and running once a Node has its provider id. Before the
infrastructure object of a deleted Machine is deleted, its Node is cordoned and drained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.cluster_api import Cluster, Machine, MachineDeletion, MachineStatus
from bramley.api.core import Node, Pod
from bramley.api.mac_status import MachineCondition
from bramley.api.names import cluster_api as names
from bramley.api.names import conditions as condition_types
from bramley.api.pod import ObjectReference
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.machines import drain
from bramley.machines.objects import is_paused, put_condition
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

# How often the Pods of a drained Node are read.
_DRAIN_RETRY = timedelta(seconds=10)
# The scheduler may have decided to bind a Pod just before it observed the cordon.
_CORDON_SETTLES = timedelta(seconds=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A Machine and the objects it depends on; the Pods are those of its Node, read for a Machine that is being deleted."""

    machine: Machine
    cluster: Cluster | None = None
    infrastructure: ScalewayAppleSiliconMachine | None = None
    node: Node | None = None
    pods: Sequence[Pod] = ()
    # Whether a MachineSet says which template to clone.
    has_template: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """One write without further parameters."""

    kind: Literal[
        "add finalizer",
        "clone infrastructure",
        "cordon Node",
        "delete infrastructure",
        "delete Node",
        "remove finalizer",
    ]


@dataclass(frozen=True, slots=True)
class SetProviderID:
    """Write the provider id of the infrastructure object to the Machine."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict one Pod."""

    pod: Pod


Step = Act | SetProviderID | Evict


@dataclass(frozen=True, slots=True)
class Decision:
    """The steps in order, the status to report, and when to look again."""

    steps: tuple[Step, ...]
    status: MachineStatus
    outcome: Outcome = field(default_factory=Settled)


def decide(observed: Observed, now: datetime) -> Decision:
    """Return what to do for a Machine."""
    machine = observed.machine
    if is_paused(machine, observed.cluster):
        return Decision((), machine.status)
    if machine.deleting:
        return _delete(observed, now)
    if observed.cluster is None:
        return Decision((), replace(machine.status, phase="Pending"))
    return _provision(observed, now)


def _provision(observed: Observed, now: datetime) -> Decision:
    machine, infrastructure = observed.machine, observed.infrastructure
    steps: list[Step] = []
    if names.MACHINE_FINALIZER not in machine.metadata.finalizers:
        steps.append(Act("add finalizer"))
    if infrastructure is not None:
        provider_id = infrastructure.spec.provider_id
        is_provisioned = infrastructure.status.ready and provider_id
        if is_provisioned and provider_id and provider_id != machine.spec.provider_id:
            steps.append(SetProviderID(provider_id))
    elif observed.has_template and not machine.status.infrastructure_ready:
        steps.append(Act("clone infrastructure"))
    return Decision(tuple(steps), _status(observed, now))


def _status(observed: Observed, now: datetime) -> MachineStatus:
    machine, infrastructure, node = observed.machine, observed.infrastructure, observed.node
    status = replace(
        machine.status,
        bootstrap_ready=machine.spec.bootstrap.data_secret_name is not None,
        observed_generation=machine.metadata.generation,
        node_ref=_reference(node) if node is not None else machine.status.node_ref,
    )
    if infrastructure is not None:
        found = infrastructure.status
        status = replace(
            status,
            infrastructure_ready=found.ready and bool(infrastructure.spec.provider_id),
            addresses=found.addresses or status.addresses,
            failure_reason=found.failure_reason,
            failure_message=found.failure_message,
        )
    elif status.infrastructure_ready:
        message = "The infrastructure object was deleted after it had been ready"
        status = replace(
            status, failure_reason=names.INVALID_CONFIGURATION, failure_message=message
        )
    return replace(status, phase=phase(status), conditions=_conditions(observed, status, now))


def phase(status: MachineStatus) -> str:
    """Return the phase of a Machine that is not being deleted, as Cluster API names it."""
    if status.failure_reason is not None:
        return "Failed"
    if status.infrastructure_ready:
        return "Running" if status.node_ref is not None else "Provisioned"
    return "Provisioning" if status.bootstrap_ready else "Pending"


def _reference(node: Node) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Node", name=node.name, uid=node.uid)


def _conditions(observed: Observed, status: MachineStatus, now: datetime) -> list[MachineCondition]:
    gone = observed.infrastructure is None and status.infrastructure_ready
    infrastructure = "" if status.infrastructure_ready else names.WAITING_FOR_INFRASTRUCTURE
    if gone:
        infrastructure = names.DELETED
    bootstrap = "" if status.bootstrap_ready else names.WAITING_FOR_DATA_SECRET
    found = put_condition(
        observed.machine.status.conditions, names.BOOTSTRAP_READY, bootstrap, now=now
    )
    found = put_condition(
        found,
        names.INFRASTRUCTURE_READY,
        infrastructure,
        message=_infrastructure_message(observed) if infrastructure else "",
        severity="Error" if gone else "Info",
        now=now,
    )
    found = _with_node_condition(found, observed.node, status, now)
    return put_condition(found, condition_types.READY, infrastructure or bootstrap, now=now)


def _infrastructure_message(observed: Observed) -> str:
    reference = observed.machine.spec.infrastructure_ref
    if observed.infrastructure is None:
        return f"{reference.kind} {reference.name} does not exist"
    ready = conditions.find(observed.infrastructure.status.conditions, condition_types.READY)
    return ready.message if ready is not None else ""


def _with_node_condition(
    found: list[MachineCondition], node: Node | None, status: MachineStatus, now: datetime
) -> list[MachineCondition]:
    if node is None:
        reason = names.NODE_PROVISIONING if status.node_ref is None else names.NODE_NOT_FOUND
        severity = "Info" if status.node_ref is None else "Error"
        return put_condition(found, names.NODE_HEALTHY, reason, severity=severity, now=now)
    ready = conditions.find(node.status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return put_condition(found, names.NODE_HEALTHY, now=now)
    return put_condition(
        found,
        names.NODE_HEALTHY,
        names.NODE_CONDITIONS_FAILED,
        message=ready.message if ready is not None else "The Node has no condition Ready",
        severity="Warning",
        status="Unknown" if drain.is_unreachable(node) else "False",
        now=now,
    )


def _delete(observed: Observed, now: datetime) -> Decision:
    machine = observed.machine
    status = replace(machine.status, phase="Deleting")
    if names.MACHINE_FINALIZER not in machine.metadata.finalizers:
        return Decision((), status)
    draining = _drain(observed, status, now)
    if draining is not None:
        return draining
    if observed.infrastructure is not None:
        found = put_condition(status.conditions, names.DRAINING_SUCCEEDED, now=now)
        found = put_condition(found, names.INFRASTRUCTURE_READY, names.DELETING, now=now)
        is_requested = observed.infrastructure.deleting
        steps = () if is_requested else (Act("delete infrastructure"),)
        return Decision(steps, replace(status, conditions=found))
    node = (Act("delete Node"),) if observed.node is not None else ()
    return Decision((*node, Act("remove finalizer")), status)


def _drain(observed: Observed, status: MachineStatus, now: datetime) -> Decision | None:
    """Return the next step of the drain; None when the Node needs none, or none any more."""
    machine, node = observed.machine, observed.node
    if node is None or names.EXCLUDE_NODE_DRAINING in machine.metadata.annotations:
        return None
    if observed.infrastructure is None or observed.infrastructure.deleting:
        # The drain has ended; what runs on the host now is the infrastructure provider's.
        return None
    before = status.deletion.node_drain_start_time if status.deletion is not None else None
    started = before or now.replace(microsecond=0)
    left = drain.time_left(machine, started, now)
    if left == timedelta():
        return None
    plan = drain.plan(node, observed.pods)
    if node.spec.unschedulable and not plan.remaining and now - started >= _CORDON_SETTLES:
        return None
    cordon = () if node.spec.unschedulable else (Act("cordon Node"),)
    message = plan.message if plan.remaining else "The Node was cordoned"
    status = replace(
        status,
        deletion=MachineDeletion(node_drain_start_time=started),
        conditions=put_condition(
            status.conditions, names.DRAINING_SUCCEEDED, names.DRAINING, message=message, now=now
        ),
    )
    after = _DRAIN_RETRY if plan.remaining and node.spec.unschedulable else _CORDON_SETTLES
    after = after if left is None else min(after, left)
    # Only after the cordon has been observed, so that no evicted Pod is replaced on this Node.
    evictions = tuple(map(Evict, plan.evict)) if node.spec.unschedulable else ()
    return Decision((*cordon, *evictions), status, CheckAgain(after, message))
