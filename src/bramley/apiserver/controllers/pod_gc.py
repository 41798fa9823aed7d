"""Pod garbage collection: deletes Pods of missing Nodes, terminating Pods without a Node, and the oldest terminated Pods.

No agent would finish the deletion of such a Pod, so it is marked as failed and deleted without grace period. A Node counts
as missing only after a while, and after the API server confirmed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from bramley.api import conditions
from bramley.api.core import Node, Pod
from bramley.apiserver.controllers.node_lifecycle import taints
from bramley.apiserver.controllers.node_lifecycle.eviction import (
    add_disruption_target,
    terminal_status,
)
from bramley.apiserver.controllers.objects import patch_object
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.manager import Manager
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

_ENDED = ("Succeeded", "Failed")
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Pods to delete, by reason; those of missing Nodes only after the Node is confirmed to be gone."""

    terminated: list[Pod] = field(default_factory=list)
    out_of_service: list[Pod] = field(default_factory=list)
    never_scheduled: list[Pod] = field(default_factory=list)
    by_missing_node: dict[str, list[Pod]] = field(default_factory=dict)


def find(pods: Sequence[Pod], nodes: Iterable[Node], *, threshold: int) -> Garbage:
    """Return the Pods to delete; a threshold of zero keeps every terminated Pod."""
    nodes_by_name = {node.name: node for node in nodes}
    terminated = [pod for pod in pods if pod.status.phase in _ENDED]
    excess = len(terminated) - threshold if threshold > 0 else 0
    garbage = Garbage(sorted(terminated, key=_deletion_rank)[:excess] if excess > 0 else [])
    for pod in pods:
        name = pod.spec.node_name
        if name and name not in nodes_by_name:
            garbage.by_missing_node.setdefault(name, []).append(pod)
        elif pod.deleting and not name:
            garbage.never_scheduled.append(pod)
        elif pod.deleting and is_out_of_service(nodes_by_name[name]):
            garbage.out_of_service.append(pod)
    return garbage


def is_out_of_service(node: Node) -> bool:
    """Return whether the Node is not ready and tainted as out of service."""
    is_ready = conditions.is_true(node.status.conditions, "Ready")
    return not is_ready and any(each.key == taints.OUT_OF_SERVICE for each in node.spec.taints)


def _deletion_rank(pod: Pod) -> tuple[bool, datetime, str]:
    is_evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not is_evicted, pod.metadata.creation_timestamp or _LONG_AGO, pod.name


@dataclass(slots=True)
class PodGarbageCollector:
    """Deletes such Pods periodically."""

    kube: FencedKube
    pods: Cache[Pod]
    nodes: Cache[Node]
    clock: Clock
    timings: Timings
    # Since when a Node of a Pod is missing.
    _missing_since: dict[str, float] = field(default_factory=dict)

    async def run(self) -> NoReturn:
        """Collect periodically until cancelled."""
        while True:
            await self.collect()
            await asyncio.sleep(self.timings.pod_gc_period.total_seconds())

    async def collect(self) -> None:
        """Collect once."""
        threshold = self.timings.terminated_pod_threshold
        garbage = find(self.pods.all(), self.nodes.all(), threshold=threshold)
        for pod in (*garbage.terminated, *garbage.out_of_service, *garbage.never_scheduled):
            await self._delete(pod)
        for name in await self._deleted_nodes(garbage.by_missing_node):
            for pod in garbage.by_missing_node[name]:
                await self._delete(pod, reason="PodGC: node no longer exists")

    async def _deleted_nodes(self, missing: Iterable[str]) -> list[str]:
        """Return the Nodes that are missing for the quarantine period and that the server does not know either."""
        now, names = self.clock.monotonic(), set(missing)
        # A Node that came back is dropped here, so its next absence starts a new quarantine.
        self._missing_since = {name: self._missing_since.get(name, now) for name in names}
        quarantine = self.timings.quarantine.total_seconds()
        expired = sorted(name for name in names if now - self._missing_since[name] >= quarantine)
        return [name for name in expired if not await self._exists(name)]

    async def _exists(self, node: str) -> bool:
        try:
            await self.kube.get(Node, node)
        except errors.NotFound:
            return False
        except errors.BramleyError as error:
            # Counts as existing: Pods of a live Node must not be deleted because a read failed.
            logger.warning("Node lookup failed", node=node, error=str(error))
        return True

    async def _delete(self, pod: Pod, *, reason: str = "") -> None:
        namespace = pod.namespace or ""
        logger.info("Garbage-collecting Pod", pod=pod.name, namespace=namespace, reason=reason)
        try:
            # Before the deletion: with a finalizer the Pod stays, and its controller has to see that it ended.
            if pod.status.phase not in _ENDED:
                await self._mark_failed(pod, reason)
            await self.kube.delete(pod, grace=timedelta())
        except errors.NotFound:
            return
        except errors.BramleyError as error:
            logger.warning("Pod garbage collection failed", pod=pod.name, error=str(error))

    async def _mark_failed(self, pod: Pod, reason: str) -> None:
        if reason:
            await add_disruption_target(
                self.kube,
                pod,
                reason="DeletionByPodGC",
                message=reason,
                clock=self.clock,
                phase="Failed",
            )
            return
        patch = {"status": terminal_status(pod, "Failed")}
        await patch_object(self.kube, pod, patch, subresource="status", only="uid")


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:  # noqa: ARG001 - all controllers are added alike
    """Add Pod garbage collection to a manager."""
    pods, nodes = manager.informer(Pod).cache, manager.informer(Node).cache
    collector = PodGarbageCollector(manager.kube, pods, nodes, clock=clock, timings=timings)
    manager.add_runnable(collector.run)
