"""The Node's status as the body of a server-side apply: only what the agent owns. Pure.

Conditions of others stay, because the list is merged by type. A transition time moves only when the status does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from bramley.agent.host import Space
from bramley.agent.ledger import ImageRecord
from bramley.agent.settings import NodeSettings
from bramley.api import conditions
from bramley.api.core import (
    ContainerImage,
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeCondition,
    NodeDaemonEndpoints,
    NodeStatus,
    NodeSystemInfo,
    Quantity,
    Taint,
)
from bramley.api.meta import ConditionStatus
from bramley.api.names import agent, labels
from bramley.api.names import conditions as types

TAINT = Taint(key=labels.MACOS_TAINT, value=labels.MACOS_TAINT_VALUE, effect=labels.NO_SCHEDULE)


def desired_labels(settings: NodeSettings, images: Sequence[ImageRecord]) -> dict[str, str]:
    """Return all labels that the agent says; what it is outweighs what it was told."""
    intrinsic = {
        labels.OS: labels.DARWIN,
        labels.ARCH: labels.ARM64,
        labels.HOSTNAME: settings.name,
        labels.RUNTIME: labels.RUNTIME_TART,
    }
    return {**settings.labels, **golden_labels(images), **intrinsic}


def golden_labels(images: Sequence[ImageRecord]) -> dict[str, str]:
    """Return a label for each reference whose golden base is on disk: schedulers know an image by its reference."""
    return {
        labels.golden(reference): labels.TRUE
        for image in images
        if image.golden
        for reference in image.references
    }


def metadata_patch(
    node: Node, settings: NodeSettings, images: Sequence[ImageRecord]
) -> dict[str, Any]:
    """Return what has to change in metadata and spec; empty when nothing has to."""
    changes: dict[str, Any] = {}
    if differing := _label_changes(node.metadata.labels, desired_labels(settings, images)):
        changes["metadata"] = {"labels": differing}
    spec: dict[str, Any] = {}
    if settings.provider_id and not node.spec.provider_id:
        spec["providerID"] = settings.provider_id
    if all(taint.key != TAINT.key for taint in node.spec.taints):
        spec["taints"] = msgspec.to_builtins([*node.spec.taints, TAINT])
    if spec:
        changes["spec"] = spec
    return changes


def _label_changes(there: Mapping[str, str], desired: Mapping[str, str]) -> dict[str, str | None]:
    missing: dict[str, str | None] = {
        key: value for key, value in desired.items() if there.get(key) != value
    }
    stale = {key: None for key in there if key.startswith(labels.PREFIX) and key not in desired}
    return missing | stale


@dataclass(frozen=True, slots=True)
class Check:
    """The last answer of a check: None before there is one, empty when all is well, else what is wrong."""

    trouble: str | None = None

    @property
    def is_well(self) -> bool:
        """Tell whether somebody looked and all was well."""
        return not self.trouble and self.trouble is not None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the Node tells; building it waits for nobody."""

    tart: Check = field(default_factory=Check)
    # None where no GUI session is looked after.
    session: Check | None = None
    # None while nobody could measure it.
    space: Space | None = None
    guest_disks: Mapping[str, float] = field(default_factory=dict)
    images: Sequence[ImageRecord] = ()
    leaks: Sequence[str] = ()
    boot_id: str = ""
    kubelet_port: int = 0


# Below this share of the host's disk, and from this fill of a guest's, there is pressure.
LEAST_FREE = 0.10
FULL_GUEST_PERCENT = 90.0
# As the kubelet: a Node is read by many, and its list of images is a hint for them.
MOST_IMAGES = 50


def status(
    settings: NodeSettings, facts: Facts, before: NodeStatus, *, now: datetime
) -> NodeStatus:
    """Return what the agent says of the host."""
    return NodeStatus(
        capacity=_room(settings, facts, settings.max_pods),
        allocatable=_room(settings, facts, max(settings.max_pods - len(facts.leaks), 0)),
        conditions=list(_conditions(facts, before.conditions, now.replace(microsecond=0))),
        addresses=_addresses(settings),
        daemon_endpoints=_endpoints(facts),
        node_info=NodeSystemInfo(
            boot_id=facts.boot_id,
            container_runtime_version=agent.RUNTIME_VERSION,
            kubelet_version=agent.KUBELET_VERSION,
            operating_system=labels.DARWIN,
            architecture=labels.ARM64,
        ),
        images=_images(facts.images),
    )


def body(said: NodeStatus) -> dict[str, Any]:
    """Return the status for the server; texts that Kubernetes requires are there even if empty."""
    wire: dict[str, Any] = msgspec.to_builtins(said)
    wire["nodeInfo"] = dict.fromkeys(_REQUIRED, "") | wire.get("nodeInfo", {})
    return wire


_REQUIRED = tuple(field.encode_name for field in msgspec.structs.fields(NodeSystemInfo))


def _room(settings: NodeSettings, facts: Facts, pods: int) -> dict[str, Quantity]:
    """Return what Pods may share; a slot that leaked is in the capacity and can be given to nobody."""
    room: dict[str, Quantity] = {
        "cpu": str(settings.cpu),
        "memory": f"{settings.memory_mb}Mi",
        "pods": str(pods),
    }
    if facts.space is not None and facts.space.total > 0:
        room["ephemeral-storage"] = str(facts.space.total)
    return room


def _conditions(
    facts: Facts, before: Sequence[NodeCondition], now: datetime
) -> Iterator[NodeCondition]:
    wanted = [_ready(facts), _slots(facts)]
    pressure = _pressure(facts) or conditions.find(before, types.DISK_PRESSURE)
    wanted.append(
        pressure or _condition(types.DISK_PRESSURE, "False", agent.NODE_HAS_SUFFICIENT_DISK)
    )
    for one in wanted:
        (kept,) = conditions.put([old for old in before if old.type == one.type], one, now=now)
        yield msgspec.structs.replace(kept, last_heartbeat_time=now)


def _ready(facts: Facts) -> NodeCondition:
    ready = types.READY
    session = facts.session
    if facts.tart.trouble is None or (session is not None and session.trouble is None):
        reported = "tart and the GUI session have not been looked at yet"
        return _condition(ready, "False", agent.NODE_STARTING, reported)
    if facts.tart.trouble:
        return _condition(ready, "False", agent.NODE_TART_BROKEN, facts.tart.trouble)
    if session is not None and session.trouble:
        return _condition(ready, "False", agent.NODE_NO_SESSION, session.trouble)
    reported = "tart answers" if session is None else "tart answers and the GUI session is alive"
    return _condition(ready, "True", agent.NODE_READY, reported)


def _pressure(facts: Facts) -> NodeCondition | None:
    """Return the condition, or None when nobody could look and the last one stands."""
    if facts.space is None:
        return None
    kind = types.DISK_PRESSURE
    if facts.space.free_share < LEAST_FREE:
        reported = f"{facts.space.free_share:.1%} of the host's disk is free"
        return _condition(kind, "True", agent.NODE_HAS_DISK_PRESSURE, reported)
    full = {vm: used for vm, used in facts.guest_disks.items() if used >= FULL_GUEST_PERCENT}
    if full:
        reported = ", ".join(
            f"the disk of guest {vm} is {used:.0f} % full" for vm, used in sorted(full.items())
        )
        return _condition(kind, "True", agent.NODE_HAS_DISK_PRESSURE, reported)
    reported = "host and guests have room on their disks"
    return _condition(kind, "False", agent.NODE_HAS_SUFFICIENT_DISK, reported)


def _slots(facts: Facts) -> NodeCondition:
    if facts.leaks:
        reported = "; ".join(facts.leaks)
        return _condition(types.SLOT_LEAKED, "True", agent.NODE_SLOT_LEAKED, reported)
    reported = "every VM on this host is explained by a record"
    return _condition(types.SLOT_LEAKED, "False", agent.NODE_NO_SLOT_LEAKED, reported)


def _condition(kind: str, status: ConditionStatus, reason: str, message: str = "") -> NodeCondition:
    return NodeCondition(type=kind, status=status, reason=reason, message=message)


def _addresses(settings: NodeSettings) -> list[NodeAddress]:
    if not settings.address:
        return []
    return [
        NodeAddress(type="InternalIP", address=settings.address),
        NodeAddress(type="Hostname", address=settings.name),
    ]


def _endpoints(facts: Facts) -> NodeDaemonEndpoints:
    if not facts.kubelet_port:
        return NodeDaemonEndpoints()
    return NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=facts.kubelet_port))


def _images(images: Sequence[ImageRecord]) -> list[ContainerImage]:
    largest = sorted(images, key=lambda image: (-image.size_bytes, image.digest))
    named = [
        ContainerImage(names=list(image.references), size_bytes=image.size_bytes)
        for image in largest
        if image.references
    ]
    return named[:MOST_IMAGES]
