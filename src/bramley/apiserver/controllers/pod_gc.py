"""Removes Pods that nobody will remove: of Nodes that are gone, never scheduled and told to go, ended and too many.

Such a Pod has no agent that could let it go, so it is marked as failed and deleted without grace. That a Node is gone is
believed only after a while, and only after the server was asked.
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
from bramley.apiserver.controllers.node_lifecycle.eviction import terminal_status, add_disruption_target
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
    """Pods to remove, by why; those of missing Nodes only if these are really gone."""

    terminal_status: list[Pod] = field(default_factory=list)
    out_of_service: list[Pod] = field(default_factory=list)
    never_scheduled: list[Pod] = field(default_factory=list)
    of_missing: dict[str, list[Pod]] = field(default_factory=dict)


def find(pods: Sequence[Pod], nodes: Iterable[Node], *, threshold: int) -> Garbage:
    """Return what is to be removed; a threshold of zero keeps every ended Pod."""
    known = {node.name: node for node in nodes}
    terminal_status = [pod for pod in pods if pod.status.phase in _ENDED]
    too_many = len(terminal_status) - threshold if threshold > 0 else 0
    garbage = Garbage(sorted(terminal_status, key=_first_to_go)[:too_many] if too_many > 0 else [])
    for pod in pods:
        name = pod.spec.node_name
        if name and name not in known:
            garbage.of_missing.setdefault(name, []).append(pod)
        elif pod.deleting and not name:
            garbage.never_scheduled.append(pod)
        elif pod.deleting and is_out_of_service(known[name]):
            garbage.out_of_service.append(pod)
    return garbage


def is_out_of_service(node: Node) -> bool:
    """Tell whether somebody vouches that nothing runs on the Node any more."""
    is_ready = conditions.is_true(node.status.conditions, "Ready")
    return not is_ready and any(each.key == taints.OUT_OF_SERVICE for each in node.spec.taints)


def _first_to_go(pod: Pod) -> tuple[bool, datetime, str]:
    is_evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not is_evicted, pod.metadata.creation_timestamp or _LONG_AGO, pod.name


class PodGarbage:
    """Looks for such Pods again and again, and removes them."""

    def __init__(
        self,
        kube: FencedKube,
        pods: Cache[Pod],
        nodes: Cache[Node],
        *,
        clock: Clock,
        timings: Timings,
    ) -> None:
        self._kube = kube
        self._pods = pods
        self._nodes = nodes
        self._clock = clock
        self._timings = timings
        # Since when a Node that Pods name is missing.
        self._missing: dict[str, float] = {}

    async def run(self) -> NoReturn:
        """Remove garbage again and again."""
        while True:
            await self.collect()
            await asyncio.sleep(self._timings.pod_gc_period.total_seconds())

    async def collect(self) -> None:
        """Remove garbage once."""
        threshold = self._timings.terminated_pod_threshold
        garbage = find(self._pods.all(), self._nodes.all(), threshold=threshold)
        for pod in (*garbage.terminal_status, *garbage.out_of_service, *garbage.never_scheduled):
            await self._remove(pod)
        for name in await self._gone(garbage.of_missing):
            for pod in garbage.of_missing[name]:
                await self._remove(pod, why="PodGC: node no longer exists")

    async def _gone(self, missing: Iterable[str]) -> list[str]:
        """Return the Nodes that are missing for long enough and that the server does not know either."""
        now, names = self._clock.monotonic(), set(missing)
        self._missing = {name: self._missing.get(name, now) for name in names}
        patience = self._timings.quarantine.total_seconds()
        due = sorted(name for name in names if now - self._missing[name] >= patience)
        return [name for name in due if not await self._exists(name)]

    async def _exists(self, node: str) -> bool:
        try:
            await self._kube.get(Node, node)
        except errors.NotFound:
            return False
        except errors.BramleyError as error:
            logger.warning("Node not looked up", node=node, error=str(error))
        return True

    async def _remove(self, pod: Pod, *, why: str = "") -> None:
        logger.info("Removing Pod", pod=pod.name, namespace=pod.namespace or "", reason=why)
        try:
            if pod.status.phase not in _ENDED:
                await self._mark_failed(pod, why)
            await self._kube.delete(pod, grace=timedelta())
        except errors.NotFound:
            return
        except errors.BramleyError as error:
            logger.warning("Pod not removed", pod=pod.name, error=str(error))

    async def _mark_failed(self, pod: Pod, why: str) -> None:
        if why:
            await add_disruption_target(
                self._kube,
                pod,
                reason="DeletionByPodGC",
                message=why,
                clock=self._clock,
                phase="Failed",
            )
            return
        await self._kube.merge_patch(
            Pod,
            pod.name,
            {"status": terminal_status(pod, "Failed")},
            namespace=pod.namespace,
            subresource="status",
            uid=pod.uid,
        )


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:  # noqa: ARG001 - all controllers are added alike
    """Add Pod garbage collection to a manager."""
    pods, nodes = manager.informer(Pod).cache, manager.informer(Node).cache
    collector = PodGarbage(manager.kube, pods, nodes, clock=clock, timings=timings)
    manager.add_runnable(collector.run)
