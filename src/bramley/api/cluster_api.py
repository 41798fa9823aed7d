"""Cluster API's core kinds, v1beta1: Cluster, MachineDeployment, MachineSet and Machine, with the fields that are used here.

On a real cluster Cluster API's core manager owns them, and only reads and single patches are made. The definitions are for the
embedded API alone: `machines.cluster_api` implements them there, so they are in neither `bramley crds` nor a chart.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from bramley.api import crds
from bramley.api.apiextensions import PrinterColumn, ScalePaths
from bramley.api.crds import CustomKind, column
from bramley.api.label_selectors import LabelSelector
from bramley.api.mac_status import MachineCondition
from bramley.api.meta import Count, Fields, Int64, Object, Resource, Time, to_wire
from bramley.api.names import cluster_api as names
from bramley.api.names import groups, labels
from bramley.api.pod import ObjectReference
from bramley.api.scaleway_machine import MachineAddress
from bramley.api.schema import list_map, text
from bramley.api.tuist_cluster import ControlPlaneEndpoint

Duration = Annotated[str, text(pattern=r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$")]
Conditions = Annotated[list[MachineCondition], Meta(extra_json_schema=list_map("type"))]
DeletePolicy = Annotated[str, Meta(extra_json_schema={"enum": ["Random", "Newest", "Oldest"]})]
# Nothing here rolls Machines, so the API rejects the other strategy.
StrategyType = Annotated[str, Meta(extra_json_schema={"enum": ["OnDelete"]})]
MANAGED_BY = "bramley"


def resource(kind: str) -> Resource:
    """Return the resource of a core kind."""
    plural = f"{kind.lower()}s"
    return Resource(names.GROUP, names.VERSION, kind, plural, namespaced=True)


class ClusterSpec(Fields, frozen=True, kw_only=True):
    """The infrastructure of a cluster, and whether reconciliation is paused."""

    paused: bool = False
    control_plane_endpoint: ControlPlaneEndpoint | None = None
    infrastructure_ref: ObjectReference | None = None


class ClusterStatus(Fields, frozen=True, kw_only=True):
    """The observed state of a cluster."""

    phase: str = ""
    infrastructure_ready: bool = False
    conditions: Conditions = []
    observed_generation: Int64 = 0


class Cluster(Object, frozen=True, kw_only=True):
    """A cluster whose Nodes are made from Machines."""

    resource: ClassVar[Resource] = resource("Cluster")

    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


class Bootstrap(Fields, frozen=True, kw_only=True):
    """The Secret with the data that bootstraps a Machine."""

    data_secret_name: str | None = None


class MachineSpec(Fields, frozen=True, kw_only=True):
    """The desired state of a Machine; in a template, its reference is to the infrastructure template."""

    cluster_name: str = ""
    bootstrap: Bootstrap = Bootstrap()
    infrastructure_ref: ObjectReference = ObjectReference()
    version: str | None = None
    provider_id: str | None = field(name="providerID", default=None)
    failure_domain: str | None = None
    node_drain_timeout: Annotated[
        Duration | None, Meta(description="How long a drain may take; absent or 0 is unlimited.")
    ] = None
    node_volume_detach_timeout: Duration | None = None
    node_deletion_timeout: Duration | None = None


class MachineDeletion(Fields, frozen=True, kw_only=True):
    """The progress of a deletion."""

    node_drain_start_time: Time | None = None


class MachineStatus(Fields, frozen=True, kw_only=True):
    """The observed state of a Machine."""

    node_ref: ObjectReference | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    addresses: list[MachineAddress] = []
    phase: str = ""
    bootstrap_ready: bool = False
    infrastructure_ready: bool = False
    observed_generation: Int64 = 0
    deletion: MachineDeletion | None = None
    conditions: Conditions = []


class Machine(Object, frozen=True, kw_only=True):
    """One host that is, or will be, a Node."""

    resource: ClassVar[Resource] = resource("Machine")

    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()


class TemplateMeta(Fields, frozen=True, kw_only=True):
    """Labels and annotations of what is made from a template."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class MachineTemplate(Fields, frozen=True, kw_only=True):
    """The Machines to make."""

    metadata: TemplateMeta = TemplateMeta()
    spec: MachineSpec = MachineSpec()


class MachineSetSpec(Fields, frozen=True, kw_only=True):
    """The desired number of Machines, and their template."""

    cluster_name: str = ""
    replicas: Count = 1
    delete_policy: DeletePolicy = ""
    selector: LabelSelector = LabelSelector()
    template: MachineTemplate = MachineTemplate()


class MachineSetStatus(Fields, frozen=True, kw_only=True):
    """The observed numbers of Machines."""

    selector: str = ""
    replicas: Count = 0
    fully_labeled_replicas: Count = 0
    ready_replicas: Count = 0
    available_replicas: Count = 0
    observed_generation: Int64 = 0
    conditions: Conditions = []


class MachineSet(Object, frozen=True, kw_only=True):
    """A number of Machines of one template."""

    resource: ClassVar[Resource] = resource("MachineSet")

    spec: MachineSetSpec = MachineSetSpec()
    status: MachineSetStatus = MachineSetStatus()


class MachineDeploymentStrategy(Fields, frozen=True, kw_only=True):
    """How Machines of an old template are replaced: only when they are deleted."""

    type: StrategyType = "OnDelete"


class MachineDeploymentSpec(Fields, frozen=True, kw_only=True):
    """The desired number of Machines, and their template."""

    cluster_name: str = ""
    replicas: Count = 1
    selector: LabelSelector = LabelSelector()
    strategy: MachineDeploymentStrategy = MachineDeploymentStrategy()
    template: MachineTemplate = MachineTemplate()
    paused: bool = False


class MachineDeploymentStatus(Fields, frozen=True, kw_only=True):
    """The observed numbers of Machines."""

    selector: str = ""
    replicas: Count = 0
    updated_replicas: Count = 0
    ready_replicas: Count = 0
    available_replicas: Count = 0
    unavailable_replicas: Count = 0
    phase: str = ""
    observed_generation: Int64 = 0
    conditions: Conditions = []


class MachineDeployment(Object, frozen=True, kw_only=True):
    """Machines of a template; a changed template is used for new Machines."""

    resource: ClassVar[Resource] = resource("MachineDeployment")

    spec: MachineDeploymentSpec = MachineDeploymentSpec()
    status: MachineDeploymentStatus = MachineDeploymentStatus()


_SCALE = ScalePaths(
    spec_replicas_path=".spec.replicas",
    status_replicas_path=".status.replicas",
    label_selector_path=".status.selector",
)
_LABELS = {labels.APP_MANAGED_BY: MANAGED_BY}
_CLUSTER = column("Cluster", "string", ".spec.clusterName")
_PHASE = column("Phase", "string", ".status.phase")
_REPLICAS = (
    column("Desired", "integer", ".spec.replicas"),
    column("Replicas", "integer", ".status.replicas"),
    column("Ready", "integer", ".status.readyReplicas"),
)


def _custom(
    kind: type[Object], short_name: str, *columns: PrinterColumn, scale: bool = False
) -> CustomKind:
    return CustomKind(
        kind,
        short_name,
        groups.INFRASTRUCTURE_CATEGORY,
        (*columns, crds.AGE),
        labels=_LABELS,
        scale=_SCALE if scale else None,
    )


KINDS = (
    _custom(Cluster, "cl", _PHASE),
    _custom(
        MachineDeployment,
        "md",
        *(_CLUSTER, *_REPLICAS),
        column("Updated", "integer", ".status.updatedReplicas"),
        _PHASE,
        scale=True,
    ),
    _custom(MachineSet, "ms", _CLUSTER, *_REPLICAS, scale=True),
    _custom(
        Machine,
        "ma",
        _CLUSTER,
        column("NodeName", "string", ".status.nodeRef.name"),
        column("ProviderID", "string", ".spec.providerID"),
        _PHASE,
    ),
)


def manifests() -> list[dict[str, Any]]:
    """Return the definitions of the core kinds for the embedded API, ready to be created."""
    return [to_wire(crds.definition(custom)) for custom in KINDS]
