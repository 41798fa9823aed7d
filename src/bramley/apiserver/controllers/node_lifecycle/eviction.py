"""Taint eviction: deletes Pods that do not tolerate a NoExecute taint of their Node, or whose toleration time is over.

The time begins when this process observes the taint, so after a restart each Pod has its whole toleration time again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.core import Node, Pod, PodCondition
from bramley.api.meta import ObjectMeta
from bramley.apiserver.controllers.node_lifecycle import taints
from bramley.apiserver.controllers.objects import log_errors, patch_object
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


@dataclass(slots=True)
class TaintEviction:
    """Deletes Pods from tainted Nodes when their toleration time is over."""

    kube: FencedKube
    nodes: Cache[Node]
    recorder: Recorder
    clock: Clock
    # When the toleration time of a Pod is over.
    _deadlines: dict[Key, tuple[str, float]] = field(default_factory=dict)
    # A Pod is deleted only once while its Node is tainted.
    _evicted: dict[Key, str] = field(default_factory=dict)

    async def reconcile(self, pod: Pod) -> Outcome:
        """Delete the Pod if it does not tolerate its Node's taints, or check again when its time is over."""
        key = key_of(pod)
        no_execute = taints.no_execute_taints(self.nodes.find(Key("", pod.spec.node_name)))
        limit = taints.toleration_limit(pod, no_execute)
        if limit is None:
            self.forget(key)
            return Settled()
        if self._evicted.get(key) == pod.uid:
            return Settled()
        remaining = self._time_left(key, pod, limit)
        if remaining > timedelta():
            return CheckAgain(remaining, "the Pod tolerates its Node's taint for a while")
        await self._evict(pod)
        self._deadlines.pop(key, None)
        # Only after the server accepted the deletion: a failed one is retried.
        self._evicted[key] = pod.uid
        return Settled()

    def forget(self, key: Key) -> None:
        """Cancel the eviction of a Pod that may stay or is gone."""
        self._evicted.pop(key, None)
        if self._deadlines.pop(key, None) is not None:
            self._record_event(key, f"Cancelling deletion of Pod {key.namespace}/{key.name}")

    def _time_left(self, key: Key, pod: Pod, limit: int) -> timedelta:
        """Return how long the Pod may stay; a running deadline is shortened only by a taint without toleration."""
        if limit == 0:
            self.forget(key)
            return timedelta()
        now = self.clock.monotonic()
        uid, due = self._deadlines.get(key, ("", 0.0))
        if uid != pod.uid:
            due = now + limit
            self._deadlines[key] = (pod.uid, due)
        # A timedelta has whole microseconds; a rest of float arithmetic would requeue with a delay of zero for ever.
        return timedelta(seconds=due - now)

    def _record_event(self, key: Key, text: str) -> None:
        # Without a uid, as kube-controller-manager does it; `kubectl describe`, which selects by uid, does not show it.
        metadata = ObjectMeta(name=key.name, namespace=key.namespace)
        self.recorder.event(Pod(metadata=metadata), _REASON, text)

    async def _evict(self, pod: Pod) -> None:
        try:
            marked = await add_disruption_target(
                self.kube,
                pod,
                reason="DeletionByTaintManager",
                message="Taint manager: deleting due to NoExecute taint",
                clock=self.clock,
            )
            await self.kube.delete(marked)
        except errors.NotFound:
            return
        self._record_event(key_of(pod), f"Marking for deletion Pod {pod.namespace}/{pod.name}")


async def add_disruption_target(
    kube: FencedKube, pod: Pod, *, reason: str, message: str, clock: Clock, phase: str | None = None
) -> Pod:
    """Set the condition DisruptionTarget, and the phase if one is given."""
    condition = PodCondition(
        type="DisruptionTarget",
        status="True",
        reason=reason,
        message=message,
        observed_generation=pod.metadata.generation or None,
    )
    after = conditions.put(pod.status.conditions, condition, now=clock.now())
    status: dict[str, Any] = {} if phase is None else terminal_status(pod, phase)
    if after != pod.status.conditions:
        status["conditions"] = msgspec.to_builtins(after)
    if not status:
        return pod
    patch = {"status": status}
    return await patch_object(kube, pod, patch, subresource="status", only="version")


def terminal_status(pod: Pod, phase: str) -> dict[str, Any]:
    """Return the status patch for a Pod that ends without its agent."""
    return {"phase": phase, "observedGeneration": pod.metadata.generation}


def index_pods_by_node(pods: Cache[Pod]) -> None:
    """Index the Pods by Node, unless they are already."""
    if not pods.has_index(BY_NODE):
        pods.index(BY_NODE, lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:  # noqa: ARG001 - all controllers are added alike
    """Add taint eviction to a manager."""
    pods, nodes = manager.informer(Pod).cache, manager.informer(Node)
    index_pods_by_node(pods)
    recorder = manager.recorder("taint-eviction-controller")
    eviction = TaintEviction(manager.kube, nodes.cache, recorder, clock=clock)
    workers = manager.add(Controller(eviction, name="taint-eviction").for_kind(Pod))

    def node_patch(key: Key, old: Node | None, new: Node | None) -> None:
        if taints.no_execute_taints(old) != taints.no_execute_taints(new):
            for pod in pods.by_index(BY_NODE, key.name):
                workers.queue.add(key_of(pod))

    nodes.on_change(log_errors(node_patch))
