"""Looks at every Node's signs of life in turn: says Unknown of the silent ones, and taints for eviction at the zones' pace.

A look that fails for one Node is no reason to do anything to it, and never stops the looks at the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import NoReturn

import msgspec

from bramley.api import conditions
from bramley.api.coordination import Lease
from bramley.api.core import Node, Pod
from bramley.apiserver.controllers.node_lifecycle import health, taints, zones
from bramley.apiserver.controllers.node_lifecycle.eviction import BY_NODE, by_node
from bramley.apiserver.controllers.node_lifecycle.health import Health
from bramley.apiserver.controllers.node_lifecycle.zones import Turn, Zones
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
_TRIES = 3


class Caches:
    """What the monitor reads."""

    def __init__(self, manager: Manager) -> None:
        self.nodes: Cache[Node] = manager.informer(Node).cache
        self.pods: Cache[Pod] = manager.informer(Pod).cache
        self.leases: Cache[Lease] = manager.informer(Lease, LEASES).cache
        by_node(self.pods)


class Monitor:
    """Keeps the signs of life of all Nodes, and acts on their absence."""

    def __init__(
        self,
        kube: FencedKube,
        caches: Caches,
        recorder: Recorder,
        *,
        clock: Clock,
        timings: Timings,
    ) -> None:
        self._kube = kube
        self._caches = caches
        self._recorder = recorder
        self._clock = clock
        self._timings = timings
        self._zones = Zones(timings)
        self._known: dict[str, Health] = {}
        self._nodes: dict[str, Node] = {}
        # Pods of these Nodes are still to be told that they are not ready.
        self._untold: set[str] = set()

    async def run(self) -> NoReturn:
        """Look at all Nodes again and again."""
        while True:
            await self.look()
            await asyncio.sleep(self._timings.node_monitor_period.total_seconds())

    async def look(self) -> None:
        """Look at all Nodes once."""
        self._notice_arrivals()
        readiness: dict[str, list[bool]] = {}
        unwell: list[Node] = []
        for node in self._caches.nodes.all():
            try:
                seen = await self._look_at(node)
            except errors.BramleyError as error:
                logger.warning("Node not looked at", node=node.name, error=str(error))
                continue
            state = health.ready(seen)
            is_ready = state is not None and state.status == "True"
            if zones.counts(seen):
                readiness.setdefault(zones.zone_of(seen), []).append(is_ready)
            if state is not None and not is_ready:
                unwell.append(seen)
        await self._turn(self._zones.look(readiness))
        await self._taint(unwell)

    def _notice_arrivals(self) -> None:
        now = {node.name: node for node in self._caches.nodes.all()}
        for name, node in now.items():
            if name not in self._nodes:
                self._tell(node, "RegisteredNode", f"Registered Node {name} in Controller")
        for name in self._nodes.keys() - now.keys():
            self._tell(self._nodes[name], "RemovingNode", f"Removing Node {name} from Controller")
            self._known.pop(name, None)
            self._untold.discard(name)
        self._nodes = now

    def _tell(self, node: Node, reason: str, text: str) -> None:
        self._recorder.event(node, reason, f"Node {node.name} event: {text}")

    async def _look_at(self, node: Node) -> Node:
        """Return the Node as it is now, after its silence was written down if it is silent."""
        before = health.ready(node)
        now, today = self._clock.monotonic(), self._clock.now()
        lease = self._caches.leases.find(Key(LEASES.namespace or "", node.name))
        known = health.observe(self._known.get(node.name), node, lease, now=now, today=today)
        self._known[node.name] = known
        timings = self._timings
        grace = timings.node_startup_grace if before is None else timings.node_monitor_grace
        if health.is_silent(known, now=now, grace=grace):
            node = await self._silence(node)
        after = health.ready(node)
        if after is not None and after.status == "True":
            node = await self._retaint(node, None)
        elif after is not None and before is not None and before.status == "True":
            text = f"Node {node.name} status is now: NodeNotReady"
            self._recorder.event(node, "NodeNotReady", text)
            self._untold.add(node.name)
        await self._tell_pods(node)
        return node

    async def _silence(self, node: Node) -> Node:
        after = health.silenced(node, today=self._clock.now())
        if conditions.find(after, "Ready") == health.ready(node):
            return node
        logger.info("Node is silent", node=node.name)
        patch = {"status": {"conditions": msgspec.to_builtins(after)}}
        return await self._kube.merge_patch(
            Node,
            node.name,
            patch,
            subresource="status",
            resource_version=node.metadata.resource_version,
        )

    async def _tell_pods(self, node: Node) -> None:
        """Mark the Pods of a Node that has just become unready, until all are."""
        if node.name not in self._untold:
            return
        for pod in self._caches.pods.indexed(BY_NODE, node.name):
            if conditions.is_true(pod.status.conditions, "Ready"):
                await self._mark_unready(pod)
        self._untold.discard(node.name)

    async def _mark_unready(self, pod: Pod) -> None:
        found = conditions.find(pod.status.conditions, "Ready")
        if found is None:
            return
        fact = msgspec.structs.replace(found, status="False")
        after = conditions.put(pod.status.conditions, fact, now=self._clock.now())
        try:
            await self._kube.merge_patch(
                Pod,
                pod.name,
                {"status": {"conditions": msgspec.to_builtins(after)}},
                namespace=pod.namespace,
                subresource="status",
                resource_version=pod.metadata.resource_version,
            )
        except errors.NotFound:
            return
        self._recorder.warning(pod, "NodeNotReady", "Node is not ready")

    async def _turn(self, turn: Turn) -> None:
        if turn is Turn.ALL_SILENT:
            # Right after a start this is as it should be: agents have not been heard yet.
            tell = logger.warning if self._zones.was_one_ready else logger.info
            tell("No Node is ready, so none is evicted from")
            await self._each(list(self._nodes.values()), lambda _: None)
        elif turn is Turn.SOME_BACK:
            now = self._clock.monotonic()
            # Nobody could be heard for a while; each has its whole grace again.
            self._known = {
                name: dataclasses.replace(known, heard_at=now)
                for name, known in self._known.items()
            }

    async def _taint(self, unwell: list[Node]) -> None:
        """Taint for eviction: at once where only the reason changed, else at the zone's pace."""
        now, chosen = self._clock.monotonic(), []
        for node in unwell:
            key = taints.key_for(node)
            other = taints.NOT_READY if key == taints.UNREACHABLE else taints.UNREACHABLE
            if key is None or taints.evicts(node.spec.taints, key):
                continue
            swaps = taints.evicts(node.spec.taints, other)
            if swaps or self._zones.pace(zones.zone_of(node)).allows(now):
                chosen.append(node)
        await self._each(chosen, taints.key_for)

    async def _each(self, nodes: list[Node], key: Callable[[Node], str | None]) -> None:
        for node in nodes:
            try:
                await self._retaint(node, key(node))
            except errors.BramleyError as error:
                logger.warning("Node not tainted", node=node.name, error=str(error))

    async def _retaint(self, node: Node, key: str | None) -> Node:
        """Give the Node this taint that evicts and not the other, whatever else happens to it meanwhile."""
        for _ in range(_TRIES):
            after = taints.evicting(node.spec.taints, key, today=self._clock.now())
            if after == node.spec.taints:
                return node
            try:
                return await self._kube.merge_patch(
                    Node,
                    node.name,
                    taints.patch(after),
                    resource_version=node.metadata.resource_version,
                )
            except errors.Conflict:
                node = await self._kube.get(Node, node.name)
        raise errors.Conflict(f"others keep changing node {node.name}")


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:  # noqa: ARG001 - all controllers are added alike
    """Add the monitor to a manager."""
    recorder = manager.recorder("node-controller")
    monitor = Monitor(manager.kube, Caches(manager), recorder, clock=clock, timings=timings)
    manager.add_runnable(monitor.run)
