"""The arithmetic of a rollout: the next number of replicas of each ReplicaSet. Pure.

Each step keeps two bounds: never more Pods than desired plus `maxSurge`, and never fewer available ones than desired minus
`maxUnavailable`, as far as the controller can influence it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from bramley.api.apps import Deployment, IntOrPercent, ReplicaSet, RollingUpdate

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAX = "deployment.kubernetes.io/max-replicas"


@dataclass(frozen=True, slots=True)
class Scale:
    """The next number of replicas of a ReplicaSet."""

    owner: ReplicaSet
    replicas: int


def is_rolling(deployment: Deployment) -> bool:
    """Return whether the strategy is RollingUpdate."""
    return deployment.spec.strategy.type != "Recreate"


def fenceposts(deployment: Deployment) -> tuple[int, int]:
    """Return `maxSurge` and `maxUnavailable` as numbers of Pods; they are never both zero."""
    rolling = deployment.spec.strategy.rolling_update or RollingUpdate()
    desired = deployment.spec.replicas
    surge = scaled_value(rolling.max_surge, desired, round_up=True)
    unavailable = scaled_value(rolling.max_unavailable, desired, round_up=False)
    return surge, unavailable if surge or unavailable else 1


def scaled_value(value: IntOrPercent | None, total: int, *, round_up: bool) -> int:
    """Return an absolute number, or a percentage of the total; zero for None."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    part = Fraction(int(digits) * total, 100) if digits.isdigit() else Fraction(0)
    return ceil(part) if round_up else floor(part)


def max_surge(deployment: Deployment) -> int:
    """Return how many Pods above the desired number a rollout may have."""
    return fenceposts(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    """Return how many Pods below the desired number a rollout may have."""
    if not is_rolling(deployment) or not deployment.spec.replicas:
        return 0
    return min(fenceposts(deployment)[1], deployment.spec.replicas)


def total(sets: Iterable[ReplicaSet]) -> int:
    """Return the desired replicas of all ReplicaSets together."""
    return sum(each.spec.replicas for each in sets)


def by_age(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return the ReplicaSets from the oldest to the newest."""
    return sorted(sets, key=lambda each: (_created(each), each.name))


def _created(each: ReplicaSet) -> float:
    created_at = each.metadata.creation_timestamp
    return created_at.timestamp() if created_at is not None else 0.0


def size_of_new(deployment: Deployment, current: int, others: Sequence[ReplicaSet]) -> int:
    """Return the replicas of the new ReplicaSet beside these others."""
    desired = deployment.spec.replicas
    if not is_rolling(deployment):
        return desired
    free = desired + max_surge(deployment) - current - total(others)
    if free <= 0:
        return current
    return current + max(min(free, desired - current), 0)


def roll(deployment: Deployment, new: ReplicaSet, olds: Sequence[ReplicaSet]) -> list[Scale]:
    """Return the next step of a rolling update; empty if it has to wait or is complete."""
    desired = deployment.spec.replicas
    if new.spec.replicas != desired:
        smaller = new.spec.replicas > desired
        size = desired if smaller else size_of_new(deployment, new.spec.replicas, olds)
        if size != new.spec.replicas:
            return [Scale(new, size)]
    return _shrink_old(deployment, new, by_age(each for each in olds if each.spec.replicas))


def _shrink_old(deployment: Deployment, new: ReplicaSet, olds: Sequence[ReplicaSet]) -> list[Scale]:
    least = deployment.spec.replicas - max_unavailable(deployment)
    # New Pods that are not available yet do not replace old ones.
    missing = new.spec.replicas - new.status.available_replicas
    removable = total(olds) + new.spec.replicas - least - missing
    if removable <= 0:
        return []
    size_annotations = {each.name: each.spec.replicas for each in olds}
    for each in olds:
        # Unavailable Pods are removed first.
        unhealthy = max(size_annotations[each.name] - each.status.available_replicas, 0)
        step = min(unhealthy, removable)
        size_annotations[each.name] -= step
        removable -= step
    available = new.status.available_replicas + sum(each.status.available_replicas for each in olds)
    spare = max(available - least, 0)
    for each in olds:
        step = min(size_annotations[each.name], spare)
        size_annotations[each.name] -= step
        spare -= step
    return [
        Scale(each, size_annotations[each.name])
        for each in olds
        if size_annotations[each.name] != each.spec.replicas
    ]


def rescale(
    deployment: Deployment, new: ReplicaSet | None, olds: Sequence[ReplicaSet]
) -> list[Scale]:
    """Return the replicas after the Deployment itself was scaled, proportional for each ReplicaSet."""
    desired = deployment.spec.replicas
    everyone = [*olds, *([new] if new is not None else [])]
    active = [each for each in everyone if each.spec.replicas]
    if len(active) <= 1:
        only = active[0] if active else new or (by_age(olds)[-1] if olds else None)
        return [] if only is None or _is_sized(deployment, only) else [Scale(only, desired)]
    if new is not None and _is_saturated(deployment, new):
        return [Scale(each, 0) for each in olds if each.spec.replicas]
    if not is_rolling(deployment):
        return [Scale(each, each.spec.replicas) for each in active]
    return _proportional(deployment, active)


def _is_sized(deployment: Deployment, each: ReplicaSet) -> bool:
    """Return whether a ReplicaSet has the desired replicas, and the annotation for them."""
    desired = deployment.spec.replicas
    return each.spec.replicas == desired and each.metadata.annotations.get(DESIRED) == str(desired)


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    enough = new.status.available_replicas == deployment.spec.replicas
    return enough and _is_sized(deployment, new)


def _proportional(deployment: Deployment, active: list[ReplicaSet]) -> list[Scale]:
    desired = deployment.spec.replicas
    allowed = desired + max_surge(deployment) if desired else 0
    change = allowed - total(active)
    # The largest first; of equals the newest grows and the oldest shrinks first.
    aged = by_age(active) if change < 0 else by_age(active)[::-1]
    ordered = sorted(aged, key=lambda each: -each.spec.replicas)
    remaining = change
    size_annotations: list[int] = []
    for each in ordered:
        share = _fraction(deployment, each) if change else 0
        step = min(share, remaining) if change > 0 else max(share, remaining)
        size_annotations.append(each.spec.replicas + step)
        remaining -= step
    size_annotations[0] = max(size_annotations[0] + remaining, 0)
    return [Scale(each, size) for each, size in zip(ordered, size_annotations, strict=True)]


def _fraction(deployment: Deployment, each: ReplicaSet) -> int:
    """Return by how much one ReplicaSet changes in proportion."""
    desired, size = deployment.spec.replicas, each.spec.replicas
    if not desired:
        return -size
    text = each.metadata.annotations.get(MAX, "")
    before = int(text) if text.isdigit() and int(text) else deployment.status.replicas
    if not before:
        return 0
    share = Fraction(size * (desired + max_surge(deployment)), before)
    return floor(share + Fraction(1, 2)) - size
