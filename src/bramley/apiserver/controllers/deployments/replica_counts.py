"""The arithmetic of a rollout: how large each ReplicaSet shall be next. Pure.

Two promises hold at each step: never more Pods than wanted plus surge, and never fewer available ones than wanted minus
what may be unavailable, as far as that is in our hands.
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
    """A ReplicaSet shall have this many Pods."""

    owner: ReplicaSet
    replicas: int


def is_rolling(deployment: Deployment) -> bool:
    """Tell whether old Pods go as new ones come."""
    return deployment.spec.strategy.type != "Recreate"


def fenceposts(deployment: Deployment) -> tuple[int, int]:
    """Return how many Pods more, and how many fewer, there may be; one of both must be possible."""
    rolling = deployment.spec.strategy.rolling_update or RollingUpdate()
    wanted = deployment.spec.replicas
    surge = _share(rolling.max_surge, wanted, up=True)
    unavailable = _share(rolling.max_unavailable, wanted, up=False)
    return surge, unavailable if surge or unavailable else 1


def _share(value: IntOrPercent | None, whole: int, *, up: bool) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    part = Fraction(int(digits) * whole, 100) if digits.isdigit() else Fraction(0)
    return ceil(part) if up else floor(part)


def max_surge(deployment: Deployment) -> int:
    """Return how many Pods more there may be during a rollout."""
    return fenceposts(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    """Return how many Pods fewer there may be during a rollout."""
    if not is_rolling(deployment) or not deployment.spec.replicas:
        return 0
    return min(fenceposts(deployment)[1], deployment.spec.replicas)


def total(sets: Iterable[ReplicaSet]) -> int:
    """Return how many Pods are wanted of all of these."""
    return sum(each.spec.replicas for each in sets)


def by_age(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Return them from the oldest to the newest."""
    return sorted(sets, key=lambda each: (_created(each), each.name))


def _created(each: ReplicaSet) -> float:
    when = each.metadata.creation_timestamp
    return when.timestamp() if when is not None else 0.0


def size_of_new(deployment: Deployment, current: int, others: Sequence[ReplicaSet]) -> int:
    """Return how large the newest ReplicaSet shall be, beside these others."""
    wanted = deployment.spec.replicas
    if not is_rolling(deployment):
        return wanted
    room = wanted + max_surge(deployment) - current - total(others)
    if room <= 0:
        return current
    return current + max(min(room, wanted - current), 0)


def roll(deployment: Deployment, new: ReplicaSet, olds: Sequence[ReplicaSet]) -> list[Scale]:
    """Return the next step of a rolling update; nothing when it has to wait or is done."""
    wanted = deployment.spec.replicas
    if new.spec.replicas != wanted:
        smaller = new.spec.replicas > wanted
        size = wanted if smaller else size_of_new(deployment, new.spec.replicas, olds)
        if size != new.spec.replicas:
            return [Scale(new, size)]
    return _shrink_old(deployment, new, by_age(each for each in olds if each.spec.replicas))


def _shrink_old(deployment: Deployment, new: ReplicaSet, olds: Sequence[ReplicaSet]) -> list[Scale]:
    least = deployment.spec.replicas - max_unavailable(deployment)
    # Pods of the new template that are not available yet must not be counted on.
    missing = new.spec.replicas - new.status.available_replicas
    removable = total(olds) + new.spec.replicas - least - missing
    if removable <= 0:
        return []
    sizes = {each.name: each.spec.replicas for each in olds}
    for each in olds:
        # Those that serve nobody go first.
        unhealthy = max(sizes[each.name] - each.status.available_replicas, 0)
        taken = min(unhealthy, removable)
        sizes[each.name] -= taken
        removable -= taken
    available = new.status.available_replicas + sum(each.status.available_replicas for each in olds)
    spare = max(available - least, 0)
    for each in olds:
        taken = min(sizes[each.name], spare)
        sizes[each.name] -= taken
        spare -= taken
    return [
        Scale(each, sizes[each.name]) for each in olds if sizes[each.name] != each.spec.replicas
    ]


def rescale(
    deployment: Deployment, new: ReplicaSet | None, olds: Sequence[ReplicaSet]
) -> list[Scale]:
    """Return the sizes after the Deployment itself was scaled, each ReplicaSet by its share."""
    wanted = deployment.spec.replicas
    everyone = [*olds, *([new] if new is not None else [])]
    active = [each for each in everyone if each.spec.replicas]
    if len(active) <= 1:
        only = active[0] if active else new or (by_age(olds)[-1] if olds else None)
        return [] if only is None or _is_sized(deployment, only) else [Scale(only, wanted)]
    if new is not None and _is_saturated(deployment, new):
        return [Scale(each, 0) for each in olds if each.spec.replicas]
    if not is_rolling(deployment):
        return [Scale(each, each.spec.replicas) for each in active]
    return _proportional(deployment, active)


def _is_sized(deployment: Deployment, each: ReplicaSet) -> bool:
    """Tell whether a ReplicaSet has the size that is wanted now, and says so."""
    wanted = deployment.spec.replicas
    return each.spec.replicas == wanted and each.metadata.annotations.get(DESIRED) == str(wanted)


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    enough = new.status.available_replicas == deployment.spec.replicas
    return enough and _is_sized(deployment, new)


def _proportional(deployment: Deployment, active: list[ReplicaSet]) -> list[Scale]:
    wanted = deployment.spec.replicas
    allowed = wanted + max_surge(deployment) if wanted else 0
    change = allowed - total(active)
    # The largest first; of equals the newest grows and the oldest shrinks first.
    aged = by_age(active) if change < 0 else by_age(active)[::-1]
    ordered = sorted(aged, key=lambda each: -each.spec.replicas)
    left = change
    sizes: list[int] = []
    for each in ordered:
        share = _fraction(deployment, each) if change else 0
        taken = min(share, left) if change > 0 else max(share, left)
        sizes.append(each.spec.replicas + taken)
        left -= taken
    sizes[0] = max(sizes[0] + left, 0)
    return [Scale(each, size) for each, size in zip(ordered, sizes, strict=True)]


def _fraction(deployment: Deployment, each: ReplicaSet) -> int:
    """Return by how much one ReplicaSet changes when the whole is scaled."""
    wanted, size = deployment.spec.replicas, each.spec.replicas
    if not wanted:
        return -size
    said = each.metadata.annotations.get(MAX, "")
    before = int(said) if said.isdigit() and int(said) else deployment.status.replicas
    if not before:
        return 0
    share = Fraction(size * (wanted + max_surge(deployment)), before)
    return floor(share + Fraction(1, 2)) - size
