"""The node monitor: marks Nodes whose heartbeat stopped as Unknown, and taints them for eviction at the rate of their zone.

A heartbeat is a change of the Lease's renew time or of the Ready condition's heartbeat time. Only the moment at which the
change is observed counts, not the times in it; so wrong clocks do no harm, and after a restart each Node has its whole grace
period again. A failure with one Node changes nothing about it and does not stop the checks of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NoReturn

import msgspec

from bramley.api import conditions
from bramley.api.coordination import Lease
from bramley.api.core import Node, NodeCondition, Pod
from bramley.apiserver.controllers.node_lifecycle import taints, zones
from bramley.apiserver.controllers.node_lifecycle.eviction import BY_NODE, index_pods_by_node
from bramley.apiserver.controllers.node_lifecycle.zones import DisruptionChange, Zones
from bramley.apiserver.controllers.objects import patch_object
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.client import Selection
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

LEASES = Selection("kube-node-lease")
_MAX_ATTEMPTS = 3
_MONITORED_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The last heartbeat of one Node, and when it was observed."""

    uid: str
    observed_at: float
    heartbeat: datetime | None
    renewed: str | None
    had_ready_condition: bool


def ready_condition(node: Node) -> NodeCondition | None:
    """Return the Ready condition."""
    return conditions.find(node.status.conditions, "Ready")


def update_health(
    before: NodeHealth | None, node: Node, lease: Lease | None, *, now: float, now_utc: datetime
) -> NodeHealth:
    """Return the health of the Node as observed now."""
    ready = ready_condition(node)
    heartbeat = ready.last_heartbeat_time if ready else None
    renewed = lease.spec.renew_time if lease else None
    if before is None or before.uid != node.uid:
        # The grace period of a Node that never reported anything began with its creation.
        created = node.metadata.creation_timestamp
        age = (now_utc - created).total_seconds() if created is not None and ready is None else 0.0
        observed_at = now if renewed is not None else now - age
        return NodeHealth(node.uid, observed_at, heartbeat, renewed, ready is not None)
    has_changed = (
        before.had_ready_condition != (ready is not None)
        or (ready is not None and before.heartbeat != heartbeat)
        or (renewed is not None and renewed > (before.renewed or ""))
    )
    return replace(
        before,
        observed_at=now if has_changed else before.observed_at,
        heartbeat=heartbeat,
        renewed=renewed if renewed is not None else before.renewed,
        had_ready_condition=ready is not None,
    )


def unknown_conditions(node: Node, *, now_utc: datetime) -> list[NodeCondition]:
    """Return the Node's conditions with those that its agent reports set to Unknown."""
    after = list(node.status.conditions)
    for type in _MONITORED_CONDITIONS:
        current = conditions.find(after, type)
        if current is not None and current.status == "Unknown":
            continue
        unknown = NodeCondition(
            type=type,
            status="Unknown",
            reason="NodeStatusNeverUpdated" if current is None else "NodeStatusUnknown",
            message=f"Kubelet {'never posted' if current is None else 'stopped posting'} node status.",
            last_heartbeat_time=(
                node.metadata.creation_timestamp if current is None else current.last_heartbeat_time
            ),
            last_transition_time=now_utc.replace(microsecond=0),
        )
        if current is None:
            after.append(unknown)
        else:
            after = [unknown if each.type == type else each for each in after]
    return after


@dataclass(slots=True)
class NodeMonitor:
    """Tracks the health of all Nodes and acts on expired heartbeats."""

    kube: FencedKube
    nodes: Cache[Node]
    pods: Cache[Pod]
    leases: Cache[Lease]
    recorder: Recorder
    clock: Clock
    timings: Timings
    _zones: Zones = field(init=False)
    _health: dict[str, NodeHealth] = field(default_factory=dict)
    _registered: dict[str, Node] = field(default_factory=dict)
    # Nodes whose Pods are still to be marked as not ready.
    _unmarked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._zones = Zones(self.timings)

    async def run(self) -> NoReturn:
        """Check all Nodes periodically."""
        while True:
            await self.check_all()
            await asyncio.sleep(self.timings.node_monitor_period.total_seconds())

    async def check_all(self) -> None:
        """Check all Nodes once."""
        self._record_registrations()
        readiness: dict[str, list[bool]] = {}
        not_ready: list[Node] = []
        for node in self.nodes.all():
            try:
                checked = await self._check(node)
            except errors.BramleyError as error:
                logger.warning("Node health check failed", node=node.name, error=str(error))
                continue
            ready = ready_condition(checked)
            is_ready = ready is not None and ready.status == "True"
            if zones.counts_for_disruption(checked):
                readiness.setdefault(zones.zone_of(checked), []).append(is_ready)
            if ready is not None and not is_ready:
                not_ready.append(checked)
        # Before tainting: the state of the zones decides how many Nodes may be tainted.
        await self._apply(self._zones.update(readiness))
        await self._taint(not_ready)

    def _record_registrations(self) -> None:
        now = {node.name: node for node in self.nodes.all()}
        for name, node in now.items():
            if name not in self._registered:
                text = f"Node {name} event: Registered Node {name} in Controller"
                self.recorder.event(node, "RegisteredNode", text)
        for name in self._registered.keys() - now.keys():
            text = f"Node {name} event: Removing Node {name} from Controller"
            self.recorder.event(self._registered[name], "RemovingNode", text)
            self._health.pop(name, None)
            self._unmarked.discard(name)
        self._registered = now

    async def _check(self, node: Node) -> Node:
        """Return the Node as it is now, marked as Unknown if its heartbeat has expired."""
        before = ready_condition(node)
        now, now_utc = self.clock.monotonic(), self.clock.now()
        lease = self.leases.find(Key(LEASES.namespace or "", node.name))
        health = update_health(self._health.get(node.name), node, lease, now=now, now_utc=now_utc)
        self._health[node.name] = health
        timings = self.timings
        grace = timings.node_startup_grace if before is None else timings.node_monitor_grace
        if now - health.observed_at > grace.total_seconds():
            node = await self._mark_unknown(node)
        after = ready_condition(node)
        if after is not None and after.status == "True":
            node = await self._set_eviction_taint(node, None)
        elif after is not None and before is not None and before.status == "True":
            text = f"Node {node.name} status is now: NodeNotReady"
            self.recorder.event(node, "NodeNotReady", text)
            self._unmarked.add(node.name)
        await self._mark_pods_not_ready(node)
        return node

    async def _mark_unknown(self, node: Node) -> Node:
        after = unknown_conditions(node, now_utc=self.clock.now())
        if conditions.find(after, "Ready") == ready_condition(node):
            return node
        logger.info("Node heartbeat expired", node=node.name)
        patch = {"status": {"conditions": msgspec.to_builtins(after)}}
        # Only at this version: a heartbeat that is written meanwhile wins.
        return await patch_object(self.kube, node, patch, subresource="status", only="version")

    async def _mark_pods_not_ready(self, node: Node) -> None:
        """Mark the Pods of a Node that has just become unready; after a failure the next check continues."""
        if node.name not in self._unmarked:
            return
        for pod in self.pods.by_index(BY_NODE, node.name):
            await self._mark_not_ready(pod)
        self._unmarked.discard(node.name)

    async def _mark_not_ready(self, pod: Pod) -> None:
        ready = conditions.find(pod.status.conditions, "Ready")
        if ready is None or ready.status != "True":
            return
        condition = msgspec.structs.replace(ready, status="False")
        after = conditions.put(pod.status.conditions, condition, now=self.clock.now())
        patch = {"status": {"conditions": msgspec.to_builtins(after)}}
        try:
            await patch_object(self.kube, pod, patch, subresource="status", only="version")
        except errors.NotFound:
            return
        self.recorder.warning(pod, "NodeNotReady", "Node is not ready")

    async def _apply(self, change: DisruptionChange) -> None:
        if change is DisruptionChange.ALL_DISRUPTED:
            # Expected right after a start, before the first heartbeats arrive.
            log_it = logger.warning if self._zones.was_any_ready else logger.info
            log_it("Evictions stopped because no Node is ready")
            await self._set_eviction_taints(list(self._registered.values()), lambda _: None)
        elif change is DisruptionChange.RECOVERED:
            # The control plane itself was probably disconnected, so each Node gets its whole grace period again.
            now = self.clock.monotonic()
            self._health = {
                name: replace(health, observed_at=now) for name, health in self._health.items()
            }

    async def _taint(self, not_ready: list[Node]) -> None:
        """Taint for eviction: at once if only the reason changed, else at the rate of the zone."""
        now, chosen = self.clock.monotonic(), []
        for node in not_ready:
            key = taints.no_execute_key(node)
            opposite = taints.NOT_READY if key == taints.UNREACHABLE else taints.UNREACHABLE
            if key is None or taints.has_no_execute_taint(node.spec.taints, key):
                continue
            is_swap = taints.has_no_execute_taint(node.spec.taints, opposite)
            # Its Pods are being evicted already, so another reason needs no token of the limiter.
            if is_swap or self._zones.limiter(zones.zone_of(node)).try_accept(now):
                chosen.append(node)
        await self._set_eviction_taints(chosen, taints.no_execute_key)

    async def _set_eviction_taints(
        self, nodes: list[Node], key: Callable[[Node], str | None]
    ) -> None:
        for node in nodes:
            try:
                await self._set_eviction_taint(node, key(node))
            except errors.BramleyError as error:
                logger.warning("Tainting Node failed", node=node.name, error=str(error))

    async def _set_eviction_taint(self, node: Node, key: str | None) -> Node:
        """Set this NoExecute taint and remove the other; retry when the Node changes meanwhile."""
        for _ in range(_MAX_ATTEMPTS):
            after = taints.with_no_execute_taint(node.spec.taints, key, now_utc=self.clock.now())
            if after == node.spec.taints:
                return node
            try:
                patch = taints.taints_patch(after)
                return await patch_object(self.kube, node, patch, only="version")
            except errors.Conflict:
                node = await self.kube.get(Node, node.name)
        raise errors.Conflict(f"node {node.name} keeps changing")


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the node monitor to a manager."""
    del client
    pods = manager.informer(Pod).cache
    index_pods_by_node(pods)
    monitor = NodeMonitor(
        manager.kube,
        manager.informer(Node).cache,
        pods,
        manager.informer(Lease, LEASES).cache,
        manager.recorder("node-controller"),
        clock=clock,
        timings=timings,
    )
    manager.add_runnable(monitor.run)
