"""Which Pods go first when there are too many: those whose loss hurts least. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bramley.api.apps import ReplicaSet, ReplicaSetStatus
from bramley.api.core import Pod
from bramley.api.label_selectors import LabelSelector, matches
from bramley.api.meta import Condition, Fields
from bramley.api.pod import PodCondition

FAILURE = "ReplicaFailure"


def available_in(pod: Pod, min_ready_seconds: int, now: datetime) -> timedelta | None:
    """Return how long until a Pod counts as available, nothing left when it does; None when it is not ready."""
    ready = ready_condition(pod)
    if ready is None:
        return None
    if not min_ready_seconds:
        return timedelta()
    if ready.last_transition_time is None:
        return None
    left = ready.last_transition_time + timedelta(seconds=min_ready_seconds) - now
    return max(left, timedelta())


def count(
    owner: ReplicaSet, pods: Sequence[Pod], *, failure: str, now: datetime
) -> ReplicaSetStatus:
    """Return the status of a ReplicaSet with these Pods; `failure` says why Pods could not be made or removed."""
    wait = [available_in(pod, owner.spec.min_ready_seconds, now) for pod in pods]
    labels = owner.spec.template.get("metadata", {}).get("labels") or {}
    whole = LabelSelector(match_labels=labels)
    return ReplicaSetStatus(
        replicas=len(pods),
        fully_labeled_replicas=sum(matches(whole, pod.metadata.labels) for pod in pods),
        ready_replicas=sum(each is not None for each in wait),
        available_replicas=sum(each == timedelta() for each in wait),
        observed_generation=owner.metadata.generation,
        conditions=_conditions(owner, len(pods), failure, now),
    )


def next_available(owner: ReplicaSet, pods: Sequence[Pod], now: datetime) -> timedelta | None:
    """Return when the next ready Pod becomes available, if one is waited for."""
    wait = [available_in(pod, owner.spec.min_ready_seconds, now) for pod in pods]
    return min((each for each in wait if each), default=None)


def _conditions(owner: ReplicaSet, have: int, failure: str, now: datetime) -> list[Condition]:
    others = [each for each in owner.status.conditions if each.type != FAILURE]
    if not failure:
        return others
    if len(others) < len(owner.status.conditions):
        return owner.status.conditions
    reason = "FailedCreate" if have < owner.spec.replicas else "FailedDelete"
    when = now.replace(microsecond=0)
    said = Condition(
        type=FAILURE, status="True", reason=reason, message=failure, last_transition_time=when
    )
    return [*others, said]


def patch_of(status: Fields, *, always: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """Return the patch that makes an object's status this one; what is zero is left out of objects, as Go does."""
    fields = {each.encode_name: None for each in msgspec.structs.fields(type(status))}
    zeros = dict.fromkeys(always, 0)
    return {"status": {**fields, **zeros, **msgspec.to_builtins(status)}}


DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_ENDED = frozenset({"Succeeded", "Failed"})

Rank = tuple[int, int, int, int, int, int, str, int, float]


def is_active(pod: Pod) -> bool:
    """Tell whether a Pod counts: it has not ended and is not ending."""
    return not pod.deleting and pod.status.phase not in _ENDED


def ready_condition(pod: Pod) -> PodCondition | None:
    """Return the condition that says since when a Pod is ready, if it is."""
    found = (each for each in pod.status.conditions if each.type == "Ready")
    ready = next(found, None)
    return ready if ready is not None and ready.status == "True" else None


def first_to_go(
    pods: Sequence[Pod], related: Iterable[Pod], *, count: int, now: datetime
) -> list[Pod]:
    """Return this many of the Pods, those first whose loss hurts least."""
    if count >= len(pods):
        return list(pods)
    # Pods of the same family on one Node: the more crowded it is, the sooner one of them goes.
    crowds = Counter(each.spec.node_name for each in related if is_active(each))
    ranked = sorted(pods, key=lambda pod: _rank(pod, crowds[pod.spec.node_name], now))
    return ranked[:count]


def _rank(pod: Pod, crowd: int, now: datetime) -> Rank:
    ready = ready_condition(pod)
    since = ready.last_transition_time if ready is not None else None
    created = pod.metadata.creation_timestamp
    return (
        1 if pod.spec.node_name else 0,
        _PHASES.get(pod.status.phase, 0),
        1 if ready is not None else 0,
        _cost(pod),
        -crowd,
        _age_rank(since, now) if ready is not None else 0,
        # Among those that are ready for about as long, chance decides, and the uid is chance enough.
        pod.uid if ready is not None else "",
        -max((each.restart_count for each in pod.status.container_statuses), default=0),
        -created.timestamp() if created is not None else -math.inf,
    )


def _age_rank(since: datetime | None, now: datetime) -> int:
    """Return the order of magnitude of an age; what is unknown or lies ahead counts as newest."""
    if since is None:
        return -1
    seconds = (now - since).total_seconds()
    return int(math.log2(seconds * 1e9)) if seconds > 0 else 0


def _cost(pod: Pod) -> int:
    text = pod.metadata.annotations.get(DELETION_COST, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else 0
