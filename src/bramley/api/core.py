"""The core/v1 kinds that hold the fleet's state: Node, Namespace, Event, Secret, ConfigMap, ServiceAccount.

Pod has its own module, `pod`, and is reached from here too. Fields that a real API server sends as null are optional here; nothing else is.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from bramley.api.meta import Condition, Fields, MicroTime, Object, Resource, Time
from bramley.api.pod import (
    LocalObjectReference,
    ObjectReference,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Quantity,
)

__all__ = [
    "ConfigMap",
    "ContainerImage",
    "Event",
    "EventSeries",
    "EventSource",
    "LocalObjectReference",
    "Namespace",
    "Node",
    "NodeAddress",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    "NodeSystemInfo",
    "ObjectReference",
    "Pod",
    "PodCondition",
    "PodSpec",
    "PodStatus",
    "Quantity",
    "Secret",
    "ServiceAccount",
    "Taint",
]


class Taint(Fields, frozen=True, kw_only=True):
    """Keeps Pods without a matching toleration off a Node."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeSpec(Fields, frozen=True, kw_only=True):
    """The desired state of a Node."""

    provider_id: str = field(name="providerID", default="")
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeCondition(Condition, frozen=True, kw_only=True):
    """One condition of a Node, with the time of its last heartbeat."""

    last_heartbeat_time: Time | None = None


class NodeAddress(Fields, frozen=True, kw_only=True):
    """One address of a Node and its type."""

    type: str
    address: str


class NodeSystemInfo(Fields, frozen=True, kw_only=True):
    """The software versions of a Node; Kubernetes requires every field."""

    machine_id: str = field(name="machineID", default="")
    system_uuid: str = field(name="systemUUID", default="")
    boot_id: str = field(name="bootID", default="")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class DaemonEndpoint(Fields, frozen=True, kw_only=True):
    """A port on which a daemon of the Node listens."""

    port: int = field(name="Port")


class NodeDaemonEndpoints(Fields, frozen=True, kw_only=True):
    """Where the API server reaches the agent for logs and stats."""

    kubelet_endpoint: DaemonEndpoint | None = None


class ContainerImage(Fields, frozen=True, kw_only=True):
    """One image that is on the Node's disk."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Fields, frozen=True, kw_only=True):
    """The observed state of a Node."""

    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    phase: str = ""
    conditions: list[NodeCondition] = []
    addresses: list[NodeAddress] = []
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()
    node_info: NodeSystemInfo = NodeSystemInfo()
    images: list[ContainerImage] = []


class Node(Object, frozen=True, kw_only=True):
    """A machine that runs Pods; here, a Mac that runs VMs."""

    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceSpec(Fields, frozen=True, kw_only=True):
    """The finalizers of a Namespace."""

    finalizers: list[str] = []


class NamespaceStatus(Fields, frozen=True, kw_only=True):
    """Whether a Namespace is active or terminating."""

    phase: str = ""
    conditions: list[Condition] = []


class Namespace(Object, frozen=True, kw_only=True):
    """A scope for names."""

    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class EventSource(Fields, frozen=True, kw_only=True):
    """The component that reported an event."""

    component: str = ""
    host: str = ""


class EventSeries(Fields, frozen=True, kw_only=True):
    """The count and the last time of a repeated event."""

    count: int = 0
    last_observed_time: MicroTime | None = None


class Event(Object, frozen=True, kw_only=True):
    """Something that happened to an object, for people to read."""

    resource: ClassVar[Resource] = Resource("", "v1", "Event", "events", namespaced=True)

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    source: EventSource = EventSource()
    count: int = 0
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class Secret(Object, frozen=True, kw_only=True):
    """Confidential values by key; the repr contains only the keys."""

    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets", namespaced=True)

    type: str = ""
    data: dict[str, bytes] = {}
    string_data: dict[str, str] = {}
    immutable: bool | None = None

    def __repr__(self) -> str:
        keys = sorted({*self.data, *self.string_data})
        return f"Secret(namespace={self.namespace!r}, name={self.name!r}, keys={keys!r})"


class ConfigMap(Object, frozen=True, kw_only=True):
    """Values by key that are not confidential."""

    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)

    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}
    immutable: bool | None = None


class ServiceAccount(Object, frozen=True, kw_only=True):
    """An identity for a program."""

    resource: ClassVar[Resource] = Resource(
        "", "v1", "ServiceAccount", "serviceaccounts", namespaced=True
    )

    automount_service_account_token: bool | None = None
    secrets: list[ObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
