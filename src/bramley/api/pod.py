"""Pod: a request for a VM. Only the fields that the scheduler, the agent and the pool controller use.

Probes, security settings and the sources of volumes are omitted: the agent does not use them, and writes are patches, so nothing
is lost.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, field

from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import Condition, Fields, Object, Resource, Time

Quantity = str | int | float
"""An amount such as `14336Mi`; a real API server always returns a string, a manifest may contain a number."""


class LocalObjectReference(Fields, frozen=True, kw_only=True):
    """An object of the same namespace, by name."""

    name: Annotated[str, Meta(description="The name of the object.")] = ""


class ObjectReference(Fields, frozen=True, kw_only=True):
    """A reference to any object, as in events."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class KeySelector(Fields, frozen=True, kw_only=True):
    """One key of a Secret or a ConfigMap."""

    key: str
    name: str = ""
    optional: bool | None = None


class FieldSelector(Fields, frozen=True, kw_only=True):
    """One field of the Pod itself."""

    field_path: str
    api_version: str = ""


class ResourceFieldSelector(Fields, frozen=True, kw_only=True):
    """One resource amount of a container."""

    resource: str
    container_name: str = ""
    divisor: Quantity = ""


class EnvVarSource(Fields, frozen=True, kw_only=True):
    """The source of a variable's value that is not literal."""

    secret_key_ref: KeySelector | None = None
    config_map_key_ref: KeySelector | None = None
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None


class EnvVar(Fields, frozen=True, kw_only=True):
    """One environment variable."""

    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvSource(Fields, frozen=True, kw_only=True):
    """A Secret or ConfigMap whose keys become variables."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(Fields, frozen=True, kw_only=True):
    """Variables from every key of one object, with a prefix."""

    prefix: str = ""
    secret_ref: EnvSource | None = None
    config_map_ref: EnvSource | None = None


class ResourceRequirements(Fields, frozen=True, kw_only=True):
    """Requests and limits of a container."""

    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class ContainerPort(Fields, frozen=True, kw_only=True):
    """A port of a container."""

    container_port: int
    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    name: str = ""
    protocol: str = ""


class Container(Fields, frozen=True, kw_only=True):
    """One container; for the agent, one VM."""

    name: str
    image: str = ""
    env: list[EnvVar] = []
    env_from: list[EnvFromSource] = []
    ports: list[ContainerPort] = []
    resources: ResourceRequirements = ResourceRequirements()
    image_pull_policy: str = ""
    restart_policy: str = ""


class Toleration(Fields, frozen=True, kw_only=True):
    """Allows a Pod on Nodes with a matching taint."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(Fields, frozen=True, kw_only=True):
    """One requirement for a label or a field of a Node."""

    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Fields, frozen=True, kw_only=True):
    """Requirements that must all be met."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Fields, frozen=True, kw_only=True):
    """Terms of which at least one must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Fields, frozen=True, kw_only=True):
    """A term that adds its weight to a Node's score."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Fields, frozen=True, kw_only=True):
    """The Nodes that a Pod requires and those that it prefers."""

    required: NodeSelector | None = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[PreferredSchedulingTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class PodAffinityTerm(Fields, frozen=True, kw_only=True):
    """The Pods to be near to, or away from; Nodes with the same value of the topology label are near."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Fields, frozen=True, kw_only=True):
    """A term that adds its weight to a Node's score, or subtracts it."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Fields, frozen=True, kw_only=True):
    """The Pods that must or should be near; as `podAntiAffinity`, must or should not."""

    required: list[PodAffinityTerm] = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )
    preferred: list[WeightedPodAffinityTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(Fields, frozen=True, kw_only=True):
    """The scheduling constraints of a Pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodSchedulingGate(Fields, frozen=True, kw_only=True):
    """A gate that must be removed before a Pod is scheduled."""

    name: str = ""


class ProjectedVolume(Fields, frozen=True, kw_only=True):
    """Files from several sources; the sources are not modelled."""


class Volume(Fields, frozen=True, kw_only=True):
    """A volume by its name, and whether it is one that the server itself adds for a Pod's token."""

    name: str
    projected: ProjectedVolume | None = None


class PodSpec(Fields, frozen=True, kw_only=True):
    """The desired state of a Pod."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    ephemeral_containers: list[Container] = []
    volumes: list[Volume] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    image_pull_secrets: list[LocalObjectReference] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    priority: int | None = None
    priority_class_name: str = ""
    runtime_class_name: str | None = None
    preemption_policy: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[PodSchedulingGate] = []
    resources: ResourceRequirements | None = None
    overhead: dict[str, Quantity] = {}
    host_network: bool = False


class PodCondition(Condition, frozen=True, kw_only=True):
    """One condition of a Pod, with the time of its last probe."""

    last_probe_time: Time | None = None


class ContainerStateWaiting(Fields, frozen=True, kw_only=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(Fields, frozen=True, kw_only=True):
    """Since when a container runs."""

    started_at: Time | None = None


class ContainerStateTerminated(Fields, frozen=True, kw_only=True):
    """How and when a container ended."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    container_id: str = field(name="containerID", default="")


class ContainerState(Fields, frozen=True, kw_only=True):
    """The one state a container is in."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Fields, frozen=True, kw_only=True):
    """The observed state of one container."""

    name: str
    image: str = ""
    image_id: str = field(name="imageID", default="")
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    container_id: str = field(name="containerID", default="")
    started: bool | None = None


class PodIP(Fields, frozen=True, kw_only=True):
    """One address of a Pod."""

    ip: str = ""


class HostIP(Fields, frozen=True, kw_only=True):
    """One address of the Node that a Pod runs on."""

    ip: str = ""


class PodStatus(Fields, frozen=True, kw_only=True):
    """The observed state of a Pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[PodCondition] = []
    nominated_node_name: str = ""
    host_ip: str = field(name="hostIP", default="")
    host_ips: list[HostIP] = field(name="hostIPs", default_factory=list)
    pod_ip: str = field(name="podIP", default="")
    pod_ips: list[PodIP] = field(name="podIPs", default_factory=list)
    start_time: Time | None = None
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    qos_class: str = ""
    observed_generation: int = 0


class Pod(Object, frozen=True, kw_only=True):
    """A request for one VM, and its status."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods", namespaced=True)

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
