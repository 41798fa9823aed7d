"""Machines, MachineSets and what they depend on, for tests of the decisions about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.api.cluster_api import (
    Bootstrap,
    Cluster,
    ClusterSpec,
    Machine,
    MachineDeployment,
    MachineDeploymentSpec,
    MachineSet,
    MachineSetSpec,
    MachineSetStatus,
    MachineSpec,
    MachineStatus,
    MachineTemplate,
)
from bramley.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodStatus
from bramley.api.mac_status import MachineCondition
from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.api.names import cluster_api as names
from bramley.api.pod import ObjectReference
from bramley.api.scaleway_machine import (
    ScalewayAppleSiliconMachine,
    ScalewayAppleSiliconMachineSpec,
    ScalewayAppleSiliconMachineStatus,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROVIDER_ID = "scw-applesilicon://fr-par-1/1"
KIND = "ScalewayAppleSiliconMachine"


def meta(name: str, *, deleting: bool = False, age: int = 0, **fields: Any) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace="n",
        uid=f"uid-{name}",
        creation_timestamp=NOW - timedelta(hours=age),
        deletion_timestamp=NOW if deleting else None,
        **fields,
    )


def a_cluster(*, paused: bool = False) -> Cluster:
    return Cluster(metadata=meta("c"), spec=ClusterSpec(paused=paused))


def a_machine(
    name: str = "m",
    *,
    deleting: bool = False,
    age: int = 0,
    ready: bool = False,
    finalizer: bool = True,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> Machine:
    if ready:
        healthy = MachineCondition(type=names.NODE_HEALTHY, status="True")
        status |= {"node_ref": ObjectReference(name=name), "conditions": [healthy]}
    return Machine(
        metadata=meta(
            name,
            deleting=deleting,
            age=age,
            annotations=annotations or {},
            finalizers=[names.MACHINE_FINALIZER] if finalizer else [],
        ),
        spec=MachineSpec(
            cluster_name="c",
            bootstrap=Bootstrap(data_secret_name="noop"),
            infrastructure_ref=ObjectReference(kind=KIND, name=name),
            **(spec or {}),
        ),
        status=MachineStatus(**status),
    )


def an_infrastructure(
    *, ready: bool = False, deleting: bool = False, **status: Any
) -> ScalewayAppleSiliconMachine:
    return ScalewayAppleSiliconMachine(
        metadata=meta("m", deleting=deleting),
        spec=ScalewayAppleSiliconMachineSpec(provider_id=PROVIDER_ID if ready else None),
        status=ScalewayAppleSiliconMachineStatus(ready=ready, **status),
    )


def a_node(*, ready: str = "True", cordoned: bool = False) -> Node:
    condition = NodeCondition(type="Ready", status=ready)  # type: ignore[arg-type]
    return Node(
        metadata=ObjectMeta(name="m", uid="uid-of-node"),
        spec=NodeSpec(provider_id=PROVIDER_ID, unschedulable=cordoned),
        status=NodeStatus(conditions=[condition]),
    )


def a_pod(
    name: str,
    *,
    phase: str = "Running",
    owner: str = "",
    deleting: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Pod:
    owners = [OwnerReference(api_version="v1", kind=owner, name="o", uid="o", controller=True)]
    return Pod(
        metadata=meta(
            name,
            deleting=deleting,
            labels=labels or {},
            annotations=annotations or {},
            owner_references=owners if owner else [],
        ),
        status=PodStatus(phase=phase),
    )


def a_template(name: str = "t1") -> MachineTemplate:
    return MachineTemplate(spec=MachineSpec(infrastructure_ref=ObjectReference(name=name)))


def a_set(
    name: str,
    replicas: int,
    *,
    template: str = "t1",
    age: int = 0,
    observed: int | None = None,
    policy: str = "",
) -> MachineSet:
    return MachineSet(
        metadata=meta(name, age=age),
        spec=MachineSetSpec(replicas=replicas, template=a_template(template), delete_policy=policy),
        status=MachineSetStatus(replicas=replicas if observed is None else observed),
    )


def a_deployment(replicas: int, *, template: str = "t1") -> MachineDeployment:
    spec = MachineDeploymentSpec(replicas=replicas, template=a_template(template))
    return MachineDeployment(metadata=meta("d"), spec=spec)
