"""The Node's labels, taint, providerID and status, computed from facts. Pure.

Every label below our own prefix belongs to the agent, so one that is no longer desired is removed; others are kept. A providerID is
set where there is none, and never changed: Kubernetes does not allow that. The status is the body of a server-side apply with only
the fields that the agent owns: conditions of other owners are kept, because the list is merged by type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from bramley.agent.dhcp_leases import LeaseUsage
from bramley.agent.host import Space, SystemInfo
from bramley.agent.ledger import ImageRecord
from bramley.agent.settings import NodeSettings
from bramley.agent.slots import SYSTEM_LIMIT, TakenSlots
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
from bramley.api.names import agent, host, labels
from bramley.api.names import conditions as types

TAINT = Taint(key=labels.MACOS_TAINT, value=labels.MACOS_TAINT_VALUE, effect=labels.NO_SCHEDULE)


def desired_labels(settings: NodeSettings, images: Sequence[ImageRecord]) -> dict[str, str]:
    """Return all labels that the agent sets; intrinsic labels take precedence over configured ones."""
    intrinsic = {
        labels.OS: labels.DARWIN,
        labels.ARCH: labels.ARM64,
        labels.HOSTNAME: settings.name,
        labels.RUNTIME: labels.RUNTIME_TART,
    }
    return {**settings.labels, **golden_labels(images), **intrinsic}


def golden_labels(images: Sequence[ImageRecord]) -> dict[str, str]:
    """Return a label for each reference whose golden base is on disk, for scheduling."""
    return {
        labels.golden(reference): labels.TRUE
        for image in images
        if image.golden
        for reference in image.references
    }


def taints_of_new_node(settings: NodeSettings) -> list[Taint]:
    """Return the configured taints, and the agent's own unless one with its key is configured."""
    configured = settings.register_taints
    own = [] if any(each.key == TAINT.key for each in configured) else [TAINT]
    return [*own, *configured]


def metadata_patch(
    node: Node, settings: NodeSettings, images: Sequence[ImageRecord]
) -> dict[str, Any]:
    """Return the merge patch for metadata and spec; empty if they are up to date."""
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


def _label_changes(current: Mapping[str, str], desired: Mapping[str, str]) -> dict[str, str | None]:
    missing: dict[str, str | None] = {
        key: value for key, value in desired.items() if current.get(key) != value
    }
    stale = {key: None for key in current if key.startswith(labels.PREFIX) and key not in desired}
    return missing | stale


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check: None before the first one, empty on success, else the error."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the Node's status is computed from."""

    tart: Check = field(default_factory=Check)
    # None where no GUI session is managed.
    session: Check | None = None
    # None while it cannot be measured.
    space: Space | None = None
    guest_disks: Mapping[str, float] = field(default_factory=dict)
    images: Sequence[ImageRecord] = ()
    # None while it has never been read.
    dhcp_leases: LeaseUsage | None = None
    slots: TakenSlots = field(default_factory=TakenSlots)
    boot_id: str = ""
    system: SystemInfo = field(default_factory=SystemInfo)
    # Empty before tart has answered.
    tart_version: str = ""
    kubelet_port: int = 0


# Thresholds of DiskPressure: the free share of the host's disk, and the usage of a guest's.
MIN_FREE_SHARE = 0.10
MAX_GUEST_DISK_PERCENT = 90.0
# The threshold of DHCPPressure: the share of leases in use.
MAX_LEASED_SHARE = 0.9
# As in the kubelet: Nodes are read often, and the list of images is only a hint for schedulers.
MAX_IMAGES = 50
_MAX_INFO_LENGTH = 128
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}", re.ASCII)


def status(
    settings: NodeSettings, facts: Facts, before: NodeStatus, *, now: datetime
) -> NodeStatus:
    """Return the Node's status."""
    return NodeStatus(
        capacity=_resources(settings, facts, settings.max_pods),
        allocatable=_resources(settings, facts, _allocatable_pods(settings, facts)),
        conditions=list(_conditions(facts, before.conditions, now.replace(microsecond=0))),
        addresses=_addresses(settings),
        daemon_endpoints=_endpoints(facts),
        node_info=_node_info(facts, before.node_info),
        images=_images(facts.images),
    )


def body(node_status: NodeStatus) -> dict[str, Any]:
    """Return the body to apply, with all strings that the API requires, even empty ones."""
    wire: dict[str, Any] = msgspec.to_builtins(node_status)
    wire["nodeInfo"] = dict.fromkeys(_REQUIRED, "") | wire.get("nodeInfo", {})
    return wire


_REQUIRED = tuple(field.encode_name for field in msgspec.structs.fields(NodeSystemInfo))


def _node_info(facts: Facts, before: NodeSystemInfo) -> NodeSystemInfo:
    """Return the versions and ids of the host; one that is unknown or no plain text keeps its published value."""
    system, tart = facts.system, facts.tart_version
    runtime = before.container_runtime_version or agent.RUNTIME_VERSION
    if _VERSION.fullmatch(tart):
        runtime = f"{agent.RUNTIME_VERSION}://{tart}"
    return NodeSystemInfo(
        machine_id=_plain(system.machine_id) or before.machine_id,
        system_uuid=_plain(system.system_uuid) or before.system_uuid,
        boot_id=facts.boot_id,
        kernel_version=_plain(system.kernel_version) or before.kernel_version,
        os_image=_plain(system.os_image) or before.os_image,
        container_runtime_version=runtime,
        kubelet_version=agent.KUBELET_VERSION,
        operating_system=labels.DARWIN,
        architecture=labels.ARM64,
    )


def _plain(text: str) -> str:
    """Return a short line of printable characters; empty for anything else, because people and terminals read it."""
    text = text.strip()
    return text if text.isprintable() and len(text) <= _MAX_INFO_LENGTH else ""


def _allocatable_pods(settings: NodeSettings, facts: Facts) -> int:
    """Return for how many Pods there is a slot: a Node that advertises fewer than macOS allows has spare ones to lose."""
    spare = max(SYSTEM_LIMIT - settings.max_pods, 0)
    lost = max(len(facts.slots.leaks) + len(facts.slots.leased) - spare, 0)
    return max(settings.max_pods - lost, 0)


def _resources(settings: NodeSettings, facts: Facts, pods: int) -> dict[str, Quantity]:
    """Return the resources; a slot of a VM without a Pod counts in the capacity but is not allocatable."""
    resources: dict[str, Quantity] = {
        "cpu": str(settings.cpu),
        "memory": f"{settings.memory_mb}Mi",
        "pods": str(pods),
    }
    if facts.space is not None and facts.space.total > 0:
        resources["ephemeral-storage"] = str(facts.space.total)
    return resources


def _conditions(
    facts: Facts, before: Sequence[NodeCondition], now: datetime
) -> Iterator[NodeCondition]:
    desired = [_ready(facts), _slots(facts)]
    pressure = _disk_pressure(facts) or conditions.find(before, types.DISK_PRESSURE)
    desired.append(
        pressure or _condition(types.DISK_PRESSURE, "False", agent.NODE_HAS_SUFFICIENT_DISK)
    )
    desired.append(_dhcp_pressure(facts, before))
    for new in desired:
        (updated,) = conditions.put([old for old in before if old.type == new.type], new, now=now)
        yield msgspec.structs.replace(updated, last_heartbeat_time=now)


def _ready(facts: Facts) -> NodeCondition:
    ready = types.READY
    session = facts.session
    if facts.tart.error is None or (session is not None and session.error is None):
        message = "tart and the GUI session have not been checked yet"
        return _condition(ready, "False", agent.NODE_STARTING, message)
    if facts.tart.error:
        return _condition(ready, "False", agent.NODE_TART_BROKEN, facts.tart.error)
    if session is not None and session.error:
        return _condition(ready, "False", agent.NODE_NO_SESSION, session.error)
    message = "tart works" if session is None else "tart works and the GUI session is alive"
    return _condition(ready, "True", agent.NODE_READY, message)


def _disk_pressure(facts: Facts) -> NodeCondition | None:
    """Return the condition, or None if it cannot be measured and the last one is kept."""
    if facts.space is None:
        return None
    kind = types.DISK_PRESSURE
    if facts.space.free_share < MIN_FREE_SHARE:
        message = f"{facts.space.free_share:.1%} of the host's disk is free"
        return _condition(kind, "True", agent.NODE_HAS_DISK_PRESSURE, message)
    full = {vm: used for vm, used in facts.guest_disks.items() if used >= MAX_GUEST_DISK_PERCENT}
    if full:
        message = ", ".join(
            f"the disk of guest {vm} is {used:.0f} % full" for vm, used in sorted(full.items())
        )
        return _condition(kind, "True", agent.NODE_HAS_DISK_PRESSURE, message)
    message = "host and guests have sufficient disk space"
    return _condition(kind, "False", agent.NODE_HAS_SUFFICIENT_DISK, message)


def _dhcp_pressure(facts: Facts, before: Sequence[NodeCondition]) -> NodeCondition:
    """Return the condition; the last one is kept while the leases have not been read."""
    kind, usage = types.DHCP_PRESSURE, facts.dhcp_leases
    if usage is None:
        previous = conditions.find(before, kind)
        return previous or _condition(kind, "False", agent.NODE_HAS_SUFFICIENT_LEASES)
    numbers = f"{usage.used} of {usage.size} DHCP leases of VMs are in use"
    if usage.used < usage.size * MAX_LEASED_SHARE:
        return _condition(kind, "False", agent.NODE_HAS_SUFFICIENT_LEASES, numbers)
    message = (
        f"{numbers} in {usage.network}, and a VM without one has no network: wait until they expire, and run "
        f"bramley host apply --only dhcp-leases, which shortens new ones; without VMs {host.DHCP_LEASES} may be deleted"
    )
    return _condition(kind, "True", agent.NODE_HAS_DHCP_PRESSURE, message)


def _slots(facts: Facts) -> NodeCondition:
    if facts.slots.leaks:
        message = "; ".join(facts.slots.leaks)
        return _condition(types.SLOT_LEAKED, "True", agent.NODE_SLOT_LEAKED, message)
    message = "no slot is leaked"
    if facts.slots.leased:
        message += f"; VMs under a lease take slots: {', '.join(facts.slots.leased)}"
    return _condition(types.SLOT_LEAKED, "False", agent.NODE_NO_SLOT_LEAKED, message)


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
    listed = [
        ContainerImage(names=list(image.references), size_bytes=image.size_bytes)
        for image in largest
        if image.references
    ]
    return listed[:MAX_IMAGES]
