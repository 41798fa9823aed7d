"""The Pods of a ReplicaSet: which of them count, which are deleted first, and the status that follows. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.apps import ReplicaSet, ReplicaSetStatus
from bramley.api.core import Pod
from bramley.api.label_selectors import LabelSelector, matches
from bramley.api.meta import Condition, Fields
from bramley.api.pod import PodCondition

FAILURE = "ReplicaFailure"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_ENDED = frozenset({"Succeeded", "Failed"})

Rank = tuple[int, int, int, int, int, int, str, int, float]


def is_active(pod: Pod) -> bool:
    """Return whether a Pod counts: it has not ended and is not being deleted."""
    return not pod.deleting and pod.status.phase not in _ENDED


def _ready(pod: Pod) -> PodCondition | None:
    ready = conditions.find(pod.status.conditions, "Ready")
    return ready if ready is not None and ready.status == "True" else None


def pods_to_delete(
    pods: Sequence[Pod], related: Iterable[Pod], *, count: int, now: datetime
) -> list[Pod]:
    """Return this many of the Pods, by kube-controller-manager's ranking; `related` count for crowded Nodes."""
    if count >= len(pods):
        return list(pods)
    # The more related Pods a Node has, the sooner one of them is deleted.
    per_node = Counter(each.spec.node_name for each in related if is_active(each))
    ranked = sorted(pods, key=lambda pod: _rank(pod, per_node[pod.spec.node_name], now))
    return ranked[:count]


def _rank(pod: Pod, related: int, now: datetime) -> Rank:
    ready = _ready(pod)
    since = ready.last_transition_time if ready is not None else None
    created = pod.metadata.creation_timestamp
    return (
        1 if pod.spec.node_name else 0,
        _PHASES.get(pod.status.phase, 0),
        1 if ready is not None else 0,
        _deletion_cost(pod),
        -related,
        _age_rank(since, now) if ready is not None else 0,
        # Pods that became ready at about the same time are ranked at random; a uid is random enough.
        pod.uid if ready is not None else "",
        -max((each.restart_count for each in pod.status.container_statuses), default=0),
        -created.timestamp() if created is not None else -math.inf,
    )


def _age_rank(since: datetime | None, now: datetime) -> int:
    """Return the order of magnitude of an age; an unknown or future time counts as newest."""
    if since is None:
        return -1
    seconds = (now - since).total_seconds()
    return int(math.log2(seconds * 1e9)) if seconds > 0 else 0


def _deletion_cost(pod: Pod) -> int:
    text = pod.metadata.annotations.get(DELETION_COST, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else 0


def available_in(pod: Pod, min_ready_seconds: int, now: datetime) -> timedelta | None:
    """Return the time until a Pod is available, zero if it is; None if it is not ready."""
    ready = _ready(pod)
    if ready is None:
        return None
    if not min_ready_seconds:
        return timedelta()
    if ready.last_transition_time is None:
        return None
    remaining = ready.last_transition_time + timedelta(seconds=min_ready_seconds) - now
    return max(remaining, timedelta())


def next_available(owner: ReplicaSet, pods: Sequence[Pod], now: datetime) -> timedelta | None:
    """Return the time until the next ready Pod becomes available, if there is one."""
    delays = [available_in(pod, owner.spec.min_ready_seconds, now) for pod in pods]
    return min((each for each in delays if each), default=None)


def calculate_status(
    owner: ReplicaSet, pods: Sequence[Pod], *, failure: str, now: datetime
) -> ReplicaSetStatus:
    """Return the status of a ReplicaSet with these Pods; `failure` is why Pods could not be created or deleted."""
    delays = [available_in(pod, owner.spec.min_ready_seconds, now) for pod in pods]
    labels = owner.spec.template.get("metadata", {}).get("labels") or {}
    template = LabelSelector(match_labels=labels)
    return ReplicaSetStatus(
        replicas=len(pods),
        fully_labeled_replicas=sum(matches(template, pod.metadata.labels) for pod in pods),
        ready_replicas=sum(each is not None for each in delays),
        available_replicas=sum(each == timedelta() for each in delays),
        observed_generation=owner.metadata.generation,
        conditions=_conditions(owner, len(pods), failure, now),
    )


def _conditions(owner: ReplicaSet, count: int, failure: str, now: datetime) -> list[Condition]:
    before = owner.status.conditions
    if not failure:
        return conditions.without(before, FAILURE)
    if conditions.find(before, FAILURE) is not None:
        return before
    reason = "FailedCreate" if count < owner.spec.replicas else "FailedDelete"
    condition = Condition(type=FAILURE, status="True", reason=reason, message=failure)
    return conditions.put(before, condition, now=now)


def status_patch(status: Fields, *, always: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """Return the patch that sets a status; fields that are zero are removed unless they are `always` written."""
    fields = {each.encode_name: None for each in msgspec.structs.fields(type(status))}
    zeros = dict.fromkeys(always, 0)
    return {"status": {**fields, **zeros, **msgspec.to_builtins(status)}}
