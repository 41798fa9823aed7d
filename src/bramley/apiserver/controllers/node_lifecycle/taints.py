"""Taints of Nodes: which follow from a Node's conditions, how long Pods tolerate them, and the controller for NoSchedule.

NoSchedule taints follow conditions at once; NoExecute taints, which evict, are set by `monitor` at a limited rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.core import Node, Pod, Taint
from bramley.apiserver.controllers.scheduling.affinity import find_toleration
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.controller import Controller
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# By condition and status.
_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_MANAGED_KEYS = frozenset((*_BY_CONDITION.values(), UNSCHEDULABLE))
_DEPRECATED_LABELS = {
    "kubernetes.io/os": "beta.kubernetes.io/os",
    "kubernetes.io/arch": "beta.kubernetes.io/arch",
}


def with_no_schedule_taints(node: Node, *, now_utc: datetime) -> list[Taint]:
    """Return the Node's taints with exactly the NoSchedule ones that its conditions call for."""
    mapped = [_BY_CONDITION.get((each.type, each.status)) for each in node.status.conditions]
    keys = [key for key in mapped if key is not None]
    if node.spec.unschedulable:
        keys.append(UNSCHEDULABLE)
    unmanaged = [
        each
        for each in node.spec.taints
        if each.effect != "NoSchedule" or each.key not in _MANAGED_KEYS or each.key in keys
    ]
    have = {each.key for each in unmanaged if each.effect == "NoSchedule"}
    missing = [key for key in dict.fromkeys(keys) if key not in have]
    return [*unmanaged, *(_taint(key, "NoSchedule", now_utc) for key in missing)]


def with_no_execute_taint(
    before: Sequence[Taint], key: str | None, *, now_utc: datetime
) -> list[Taint]:
    """Return the taints with this one of the two that evict and without the other; with None, without both."""
    others = {NOT_READY, UNREACHABLE} - {key}
    remaining = [each for each in before if each.effect != "NoExecute" or each.key not in others]
    if key is None or has_no_execute_taint(remaining, key):
        return remaining
    return [*remaining, _taint(key, "NoExecute", now_utc)]


def has_no_execute_taint(taints: Iterable[Taint], key: str) -> bool:
    """Return whether there is a NoExecute taint with this key."""
    return any(each.key == key and each.effect == "NoExecute" for each in taints)


def no_execute_key(node: Node) -> str | None:
    """Return the key of the NoExecute taint that the Ready condition calls for, or None."""
    ready = conditions.find(node.status.conditions, "Ready")
    return None if ready is None else _BY_CONDITION.get(("Ready", ready.status))


def no_execute_taints(node: Node | None) -> list[Taint]:
    """Return all NoExecute taints of a Node."""
    return [] if node is None else [each for each in node.spec.taints if each.effect == "NoExecute"]


def toleration_limit(pod: Pod, taints: Iterable[Taint]) -> int | None:
    """Return for how many seconds the Pod tolerates all of these taints; None means without limit."""
    tolerations = [find_toleration(taint, pod.spec.tolerations) for taint in taints]
    if any(each is None for each in tolerations):
        return 0
    limits = [each.toleration_seconds for each in tolerations if each is not None]
    return min((max(limit, 0) for limit in limits if limit is not None), default=None)


def taints_patch(taints: Sequence[Taint]) -> dict[str, Any]:
    """Return the merge patch that sets the taints of a Node."""
    return {"spec": {"taints": msgspec.to_builtins(list(taints)) or None}}


def _taint(key: str, effect: str, now_utc: datetime) -> Taint:
    return Taint(key=key, effect=effect, time_added=now_utc.replace(microsecond=0))


@dataclass(frozen=True, slots=True)
class NodeTaintReconciler:
    """Keeps the NoSchedule taints of each Node, and its deprecated labels."""

    kube: FencedKube
    clock: Clock

    async def reconcile(self, node: Node) -> Outcome:
        """Write taints and labels if they differ."""
        patch: dict[str, Any] = {}
        taints = with_no_schedule_taints(node, now_utc=self.clock.now())
        if taints != node.spec.taints:
            patch = taints_patch(taints)
        labels = node.metadata.labels
        deprecated = {
            old: labels[new]
            for new, old in _DEPRECATED_LABELS.items()
            if new in labels and labels.get(old) != labels[new]
        }
        if deprecated:
            patch["metadata"] = {"labels": deprecated}
        if patch:
            # A merge patch replaces the whole list: without the version it would drop a taint added meanwhile.
            version = node.metadata.resource_version
            with suppress(errors.NotFound):
                await self.kube.merge_patch(Node, node.name, patch, resource_version=version)
        return Settled()


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the controller that taints Nodes by their conditions."""
    del client, timings
    reconciler = NodeTaintReconciler(manager.kube, clock)
    manager.add(Controller(reconciler, name="node-taints").for_kind(Node))
