"""Which Pods of a Node are evicted before its Machine is deleted, and which are waited for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api import conditions
from bramley.api.cluster_api import Machine
from bramley.api.core import Node, Pod
from bramley.api.names import cluster_api as names
from bramley.api.names import labels

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9.]+)(h|ms|m|s)")
_ENDED = frozenset({"Succeeded", "Failed"})
_NAMED_PODS = 5


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """The Pods to evict, and all Pods that the Node still has to lose."""

    evict: tuple[Pod, ...]
    remaining: tuple[Pod, ...]

    @property
    def message(self) -> str:
        """Return what the drain waits for."""
        pods = sorted(f"{each.namespace}/{each.name}" for each in self.remaining)
        more = f" and {len(pods) - _NAMED_PODS} more" if len(pods) > _NAMED_PODS else ""
        return f"Waiting for Pods: {', '.join(pods[:_NAMED_PODS])}{more}"


def plan(node: Node | None, pods: Iterable[Pod]) -> DrainPlan:
    """Return the drain of a Node; Pods of runners are waited for and never evicted, since they may run a job."""
    remaining = tuple(each for each in pods if _must_leave(each, is_lost=is_unreachable(node)))
    evict = tuple(each for each in remaining if not each.deleting and not _is_runner(each))
    return DrainPlan(evict, remaining)


def _must_leave(pod: Pod, *, is_lost: bool) -> bool:
    """Return whether a Node is not drained while it has this Pod."""
    if pod.status.phase in _ENDED or names.MIRROR_POD in pod.metadata.annotations:
        return False
    if any(ref.controller and ref.kind == "DaemonSet" for ref in pod.metadata.owner_references):
        return False
    # No agent would complete its deletion.
    return not (pod.deleting and is_lost)


def _is_runner(pod: Pod) -> bool:
    return pod.metadata.labels.get(labels.RUNNER) == labels.TRUE


def is_unreachable(node: Node | None) -> bool:
    """Return whether the Node is gone, or does not send heartbeats."""
    if node is None:
        return True
    ready = conditions.find(node.status.conditions, "Ready")
    return ready is not None and ready.status == "Unknown"


def duration(text: str | None) -> timedelta:
    """Return a duration as Go writes it; an absent one is zero."""
    parts = _PART.findall(text or "")
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))


def time_left(machine: Machine, started: datetime, now: datetime) -> timedelta | None:
    """Return how long the drain may still take, zero if its timeout has passed; None is unlimited."""
    timeout = duration(machine.spec.node_drain_timeout)
    return max(started + timeout - now, timedelta()) if timeout else None
