"""How long an agent may keep Secrets and ConfigMaps before it asks again: an annotation on each Node, longer in larger clusters."""

from __future__ import annotations

from dataclasses import dataclass

from bramley.api.core import Node
from bramley.apiserver.controllers.timings import Timings
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube

TTL = "node.alpha.kubernetes.io/ttl"
# From so many Nodes on, so many seconds. A cluster that shrinks keeps the longer time for a tenth of the way down.
_STEPS = ((0, 0), (100, 15), (500, 30), (1000, 60), (2000, 300))


def seconds_for(nodes: int, now: int) -> int:
    """Return the time for a cluster of this size, in which Nodes have the time `now`."""
    grown = max(seconds for limit, seconds in _STEPS if nodes > limit or not limit)
    shrunk = max(seconds for limit, seconds in _STEPS if nodes > limit * 9 // 10 or not limit)
    return min(max(now, grown), shrunk)


@dataclass(frozen=True, slots=True)
class NodeTtlReconciler:
    """Keeps the annotation."""

    kube: FencedKube
    nodes: Cache[Node]

    async def reconcile(self, node: Node) -> Outcome:
        """Write the time if it is another one."""
        text = node.metadata.annotations.get(TTL, "")
        wanted = seconds_for(len(self.nodes), int(text) if text.isdecimal() else 0)
        if text != str(wanted) and not node.deleting:
            patch = {"metadata": {"annotations": {TTL: str(wanted)}}}
            await self.kube.merge_patch(Node, node.name, patch, uid=node.uid)
        return Settled()


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Keep the annotation on every Node."""
    del client, clock, timings
    nodes = manager.informer(Node).cache
    reconciler = NodeTtlReconciler(manager.kube, nodes)
    manager.add(Controller(reconciler, name="node-ttl").for_kind(Node))
