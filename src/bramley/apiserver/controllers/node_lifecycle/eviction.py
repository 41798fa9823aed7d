"""Deletes Pods from Nodes whose NoExecute taints they do not bear, at once or when the time is over for which they do.

The time begins when this process sees the taint: one that starts anew gives every Pod its whole time again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.core import Node, Pod, PodCondition
from bramley.api.meta import ObjectMeta
from bramley.apiserver.controllers.following import sparing
from bramley.apiserver.controllers.node_lifecycle import taints
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key, key_of
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

BY_NODE = "node lifecycle by node"
_REASON = "TaintManagerEviction"


class Eviction:
    """Watches over the time that Pods have on tainted Nodes."""

    def __init__(
        self, kube: FencedKube, nodes: Cache[Node], recorder: Recorder, *, clock: Clock
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._recorder = recorder
        self._clock = clock
        # When the time of those is over that bear a taint for a while.
        self._due: dict[Key, tuple[str, float]] = {}
        # Those that were told to go are not told again while their Node is tainted.
        self._told: dict[Key, str] = {}

    async def reconcile(self, pod: Pod) -> Outcome:
        """Delete the Pod, or say when its time is over, or let it be; also one that goes already."""
        key = key_of(pod)
        found = taints.no_execute(self._nodes.find(Key("", pod.spec.node_name)))
        limit = taints.bears(pod, found) if found else taints.FOREVER
        if limit is None:
            self.forget(key)
            return Settled()
        if self._told.get(key) == pod.uid:
            return Settled()
        left = self._left(key, pod, limit)
        if left > timedelta():
            return CheckAgain(left, "the Pod bears its Node's taint for a while")
        await self._evict(pod)
        self._due.pop(key, None)
        self._told[key] = pod.uid
        return Settled()

    def forget(self, key: Key) -> None:
        """Call off what would have become of a Pod that may stay, or that is gone."""
        self._told.pop(key, None)
        if self._due.pop(key, None) is not None:
            self._tell(key, f"Cancelling deletion of Pod {key.namespace}/{key.name}")

    def _left(self, key: Key, pod: Pod, limit: int) -> timedelta:
        """Return how long the Pod may stay: once its time runs, only a taint that it does not bear at all shortens it."""
        if limit == 0:
            self.forget(key)
            return timedelta()
        now = self._clock.monotonic()
        uid, due = self._due.get(key, ("", 0.0))
        if uid != pod.uid:
            due = now + limit
            self._due[key] = (pod.uid, due)
        # Whole microseconds: what is left of a sum of floats would be a wait of nothing, again and again.
        return timedelta(seconds=due - now)

    def _tell(self, key: Key, text: str) -> None:
        # A real cluster tells it of whatever Pod has this name; by uid, as `kubectl describe` asks, it is not found.
        place = ObjectMeta(name=key.name, namespace=key.namespace)
        self._recorder.event(Pod(metadata=place), _REASON, text)

    async def _evict(self, pod: Pod) -> None:
        try:
            marked = await mark_disrupted(
                self._kube,
                pod,
                reason="DeletionByTaintManager",
                message="Taint manager: deleting due to NoExecute taint",
                clock=self._clock,
            )
            await self._kube.delete(marked)
        except errors.NotFound:
            return
        self._tell(key_of(pod), f"Marking for deletion Pod {pod.namespace}/{pod.name}")


async def mark_disrupted(
    kube: FencedKube,
    pod: Pod,
    *,
    reason: str,
    message: str,
    clock: Clock,
    phase: str | None = None,
) -> Pod:
    """Write the condition that tells controllers why a Pod goes, and its last phase if it is given."""
    fact = PodCondition(
        type="DisruptionTarget",
        status="True",
        reason=reason,
        message=message,
        observed_generation=pod.metadata.generation or None,
    )
    after = conditions.put(pod.status.conditions, fact, now=clock.now())
    status: dict[str, Any] = {} if phase is None else ended(pod, phase)
    if after != pod.status.conditions:
        status["conditions"] = msgspec.to_builtins(after)
    if not status:
        return pod
    return await kube.merge_patch(
        Pod,
        pod.name,
        {"status": status},
        namespace=pod.namespace,
        subresource="status",
        resource_version=pod.metadata.resource_version,
    )


def ended(pod: Pod, phase: str) -> dict[str, Any]:
    """Return the status of a Pod that somebody other than its agent ends."""
    return {"phase": phase, "observedGeneration": pod.metadata.generation}


def by_node(pods: Cache[Pod]) -> None:
    """Keep an index of the Pods of each Node, unless there is one."""
    if not pods.has_index(BY_NODE):
        pods.index(BY_NODE, lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:  # noqa: ARG001 - all controllers are added alike
    """Add the controller that evicts from tainted Nodes."""
    pods, nodes = manager.informer(Pod).cache, manager.informer(Node)
    by_node(pods)
    recorder = manager.recorder("taint-eviction-controller")
    eviction = Eviction(manager.kube, nodes.cache, recorder, clock=clock)
    workers = manager.add(Controller(eviction, name="taint-eviction").for_kind(Pod))

    def changed(key: Key, old: Node | None, new: Node | None) -> None:
        if taints.no_execute(old) != taints.no_execute(new):
            for pod in pods.indexed(BY_NODE, key.name):
                workers.queue.add(key_of(pod))

    nodes.on_change(sparing(changed))
