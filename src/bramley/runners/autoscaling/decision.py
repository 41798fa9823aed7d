"""The decision of the autoscaler for all pools of one fleet. Pure.

A pool grows at once. It shrinks only after its share was below `spec.replicas` for the whole cooldown, and then not below the
largest share within that time. Until then it holds its runners, unless another pool has no slot for its load or its floor.
A pool without signals keeps its replicas, and so do the slots that it occupies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api.names import events
from bramley.runners.autoscaling import desired
from bramley.runners.autoscaling.allocation import PoolDemand, allocate
from bramley.runners.dispatch_client import ScalingSignals


@dataclass(frozen=True, slots=True)
class LowDemand:
    """Since when the share of a pool is below its replicas, and the largest share since then."""

    since: datetime
    highest: int


@dataclass(frozen=True, slots=True)
class PoolState:
    """What the decision takes from one pool; without signals its demand is unknown."""

    name: str
    replicas: int
    floor: int
    maximum: int
    cooldown: timedelta
    signals: ScalingSignals | None = None
    low_demand: LowDemand | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The number of runners of one pool, and why; `target` is what it would get if it had the fleet to itself."""

    replicas: int
    target: int
    reason: str
    message: str
    low_demand: LowDemand | None = None


@dataclass(frozen=True, slots=True)
class FleetDecision:
    """The decisions for all pools of a fleet and what they were based on; every pool applies its own one."""

    states: Mapping[str, PoolState]
    decisions: Mapping[str, Decision]

    def covers(self, state: PoolState) -> bool:
        """Return whether the decision for a pool still holds: it is as it was, or as was decided."""
        before = self.states.get(state.name)
        if before is None:
            return False
        replicas = (before.replicas, self.decisions[state.name].replicas)
        limits = (state.floor, state.maximum, state.cooldown)
        return state.replicas in replicas and limits == (
            before.floor,
            before.maximum,
            before.cooldown,
        )


@dataclass(frozen=True, slots=True)
class _Share:
    """A pool with signals: what it needs, and whether that is less than it has."""

    state: PoolState
    signals: ScalingSignals
    demand: PoolDemand
    low_demand: LowDemand | None = None


def decide(pools: Sequence[PoolState], slots: int | None, now: datetime) -> dict[str, Decision]:
    """Return the decision for each pool; with unknown slots each pool gets its own target."""
    known = [_demand_of(state, state.signals) for state in pools if state.signals is not None]
    unknown = [state for state in pools if state.signals is None]
    if slots is not None:
        slots = max(0, slots - sum(state.replicas for state in unknown))
    proposed = _allocated(known, slots)
    shares = [_with_held(share, proposed[share.state.name], now) for share in known]
    final = _allocated(shares, slots)
    decisions = {share.state.name: _explained(share, final, slots) for share in shares}
    return decisions | {state.name: _unchanged(state) for state in unknown}


def _demand_of(state: PoolState, signals: ScalingSignals) -> _Share:
    target = desired.desired_replicas(signals, floor=state.floor, maximum=state.maximum)
    demand = PoolDemand(state.name, desired.load(signals), state.floor, target)
    return _Share(state, signals, demand)


def _allocated(shares: Sequence[_Share], slots: int | None) -> Mapping[str, int]:
    demands = [share.demand for share in shares]
    if slots is None:
        # Every round fits: a fleet without a visible host must not lose all its runners.
        return {demand.pool: demand.rounds[-1] for demand in demands}
    return allocate(demands, slots)


def _with_held(share: _Share, proposed: int, now: datetime) -> _Share:
    """Limit a share to the proposed one, or to what the pool holds while it cools down."""
    state = share.state
    low = _low_demand(state, proposed, now)
    held = state.replicas
    if low is not None and now - low.since >= state.cooldown:
        held = min(held, low.highest)
    demand = dataclasses.replace(share.demand, target=proposed, held=min(held, state.maximum))
    return dataclasses.replace(share, demand=demand, low_demand=low)


def _low_demand(state: PoolState, proposed: int, now: datetime) -> LowDemand | None:
    if proposed >= state.replicas:
        return None
    before = state.low_demand
    if before is None:
        return LowDemand(now, proposed)
    return LowDemand(before.since, max(before.highest, proposed))


def _explained(share: _Share, final: Mapping[str, int], slots: int | None) -> Decision:
    state, signals, proposed = share.state, share.signals, share.demand.target
    replicas = final[state.name]
    floor, maximum = state.floor, state.maximum
    target = desired.desired_replicas(signals, floor=floor, maximum=maximum)
    reason = desired.reason(signals, floor=floor, maximum=maximum)
    detail = ""
    if replicas > proposed:
        reason = events.COOLING_DOWN
        seconds = int(state.cooldown.total_seconds())
        detail = f"{proposed} are enough, but must be so for {seconds} s; "
    elif replicas < target:
        reason = events.FLEET_FULL
        detail = f"{target} are needed, but the fleet has {slots} slots for its autoscaled pools; "
    # A smaller number of replicas starts the next cooldown.
    low = share.low_demand if replicas >= state.replicas else None
    message = f"{replicas} runners: {detail}{_inputs(state, signals)}"
    return Decision(replicas, target, reason, message, low)


def _inputs(state: PoolState, signals: ScalingSignals) -> str:
    return (
        f"{signals.claimed} claimed, {signals.queued} queued and {signals.withheld} withheld jobs, "
        f"{signals.occupied} occupied runners, "
        f"95th percentile {signals.p95_concurrent_last_hour}, "
        f"floor {state.floor}, maximum {state.maximum}"
    )


def _unchanged(state: PoolState) -> Decision:
    message = f"{state.replicas} runners, unchanged: there are no recent scaling signals"
    return Decision(state.replicas, state.replicas, events.SIGNALS_UNAVAILABLE, message)
