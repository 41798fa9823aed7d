"""How many runners a pool needs by itself, from its demand, its floor and its maximum. Pure."""

from __future__ import annotations

from bramley.api.names import events
from bramley.runners.dispatch_client import ScalingSignals


def occupancy(signals: ScalingSignals) -> int:
    """Return how many runners are in use; older servers report only claimed jobs."""
    return max(signals.occupied, signals.claimed)


def blocked_demand(signals: ScalingSignals) -> int:
    """Return 1 if jobs wait for a limit of their account, so that a runner exists when the limit allows one."""
    return 1 if signals.withheld > 0 else 0


def load(signals: ScalingSignals) -> int:
    """Return how many runners have work, or would have it at once."""
    return occupancy(signals) + signals.queued + blocked_demand(signals)


def desired_replicas(signals: ScalingSignals, *, floor: int, maximum: int) -> int:
    """Return how many runners the pool needs, at most its maximum."""
    needed = max(load(signals), signals.p95_concurrent_last_hour) + floor
    return min(max(needed, 0), max(maximum, 0))


def reason(signals: ScalingSignals, *, floor: int, maximum: int) -> str:
    """Return what determines the number of desired replicas."""
    needed, p95 = load(signals), signals.p95_concurrent_last_hour
    if max(needed, p95) + floor > maximum:
        return events.AT_MAXIMUM
    if p95 > needed:
        return events.PERCENTILE
    if needed > occupancy(signals):
        return events.QUEUED_JOBS
    if needed:
        return events.OCCUPIED_RUNNERS
    return events.WARM_FLOOR if floor else events.NO_DEMAND
