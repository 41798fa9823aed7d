"""How many Pods may be evicted now. Pure; `disruption` asks the world and writes the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil

from bramley.api.core import Pod
from bramley.api.meta import Condition
from bramley.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from bramley.apiserver.controllers.replica_sets.ranking import ready_condition

ALLOWED = "DisruptionAllowed"


@dataclass(frozen=True, slots=True)
class Counted:
    """The status that a budget shall have, and when it has to be looked at again."""

    status: PodDisruptionBudgetStatus
    again: timedelta | None = None
    late: tuple[Pod, ...] = ()


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Tell whether one has to know how many Pods their controllers want, and not only how many there are."""
    spec = budget.spec
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def desired(budget: PodDisruptionBudget, expected: int) -> int:
    """Return how many healthy Pods there must be."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(expected - _share(spec.max_unavailable, expected), 0)
    return 0 if spec.min_available is None else _share(spec.min_available, expected)


def _share(value: int | str, whole: int) -> int:
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    return ceil(Fraction(int(digits) * whole, 100)) if digits.isdigit() else 0


def count(
    budget: PodDisruptionBudget,
    pods: Sequence[Pod],
    *,
    expected: int,
    now: datetime,
    patience: timedelta,
) -> Counted:
    """Return how many Pods may be evicted now, of these and with so many expected."""
    here = {pod.name: pod for pod in pods if not pod.deleting}
    noted = {name: at for name, at in budget.status.disrupted_pods.items() if name in here}
    # Who evicts a Pod notes it; until the deletion is seen it counts as gone, but not for ever.
    going = {name: at for name, at in noted.items() if at + patience >= now}
    healthy = sum(
        ready_condition(pod) is not None for name, pod in here.items() if name not in going
    )
    wanted = desired(budget, expected)
    allowed = max(healthy - wanted, 0) if expected > 0 else 0
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=going,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=wanted,
        expected_pods=expected,
        conditions=told(budget, allowed=allowed, now=now),
    )
    soonest = min((at + patience - now for at in going.values()), default=None)
    late = tuple(here[name] for name in noted if name not in going)
    return Counted(status, soonest, late)


def told(
    budget: PodDisruptionBudget, *, allowed: int, now: datetime, failure: str = ""
) -> list[Condition]:
    """Return the conditions of a budget that allows so many disruptions, or of one that could not be counted."""
    status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    generation = budget.metadata.generation
    if failure:
        status, reason = "False", "SyncFailed"
        generation = budget.status.observed_generation
    old = next((each for each in budget.status.conditions if each.type == ALLOWED), None)
    since = old.last_transition_time if old is not None and old.status == status else None
    new = Condition(
        type=ALLOWED,
        status="True" if status == "True" else "False",
        reason=reason,
        message=failure,
        observed_generation=generation,
        last_transition_time=since or now.replace(microsecond=0),
    )
    return [*(each for each in budget.status.conditions if each.type != ALLOWED), new]


def patch(
    status: PodDisruptionBudgetStatus, before: Mapping[str, datetime]
) -> Mapping[str, object]:
    """Return the patch that writes a status; names that are noted no longer are taken out one by one."""
    noted: dict[str, str | None] = dict.fromkeys(before)
    noted |= {name: _text(at) for name, at in status.disrupted_pods.items()}
    return {
        "status": {
            "observedGeneration": status.observed_generation,
            "disruptionsAllowed": status.disruptions_allowed,
            "currentHealthy": status.current_healthy,
            "desiredHealthy": status.desired_healthy,
            "expectedPods": status.expected_pods,
            "disruptedPods": noted or None,
            "conditions": [_wire(each) for each in status.conditions],
        }
    }


def _wire(condition: Condition) -> dict[str, object]:
    when = condition.last_transition_time
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": None if when is None else _text(when),
    }


def _text(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"
