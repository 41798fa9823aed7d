"""What a ReplicaSet says of its Pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bramley.api.apps import ReplicaSet, ReplicaSetStatus
from bramley.api.core import Pod
from bramley.api.label_selectors import LabelSelector, matches
from bramley.api.meta import Condition, Fields
from bramley.apiserver.controllers.replica_sets.ranking import ready_condition

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
