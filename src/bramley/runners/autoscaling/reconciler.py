"""The autoscaler: sets `spec.replicas` of each autoscaled pool every few seconds, and explains why in `status.autoscaling`.

All pools of a fleet are decided on in one pass, which the reconcile of each pool applies to its own pool: if each pool decided by
itself, the sum could exceed the slots while some pools are scaled and others are not yet. It writes only when the decision or one
of its inputs changes. Signals and slots come from `fleet`, the decision from `decision`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from bramley.api.core import Node
from bramley.api.names import events, labels
from bramley.api.names import metrics as names
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import AutoscalingStatus
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.metrics import gauge
from bramley.runners.autoscaling import desired
from bramley.runners.autoscaling.decision import (
    Decision,
    FleetDecision,
    LowDemand,
    PoolState,
    decide,
)
from bramley.runners.autoscaling.fleet import (
    RecentSignals,
    SignalSettings,
    is_autoscaled,
    observed_host,
    sharing_pools,
)
from bramley.runners.dispatch_client import ScalingSignals, Signals
from bramley.runners.hosts import fleet_of
from bramley.runtime.cache import Cache
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key, key_of
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

NAME = "autoscaler"
BY_FLEET = "autoscaler.fleet"
TICK = timedelta(seconds=5)
# Shorter than the time between two ticks of a pool, longer than between the ticks of two pools.
PASS_SECONDS = 4.0
# Many, because most of the time a worker waits for HTTP.
WORKERS = 64

_NEXT_TICK = CheckAgain(TICK, "demand is checked periodically")


class AutoscalerMetrics:
    """The metrics of the autoscaler in one registry; a pool has all of them or none."""

    def __init__(self, registry: CollectorRegistry) -> None:
        texts = {
            names.AUTOSCALER_TARGET: "Runners the pool would get if it had the fleet to itself.",
            names.AUTOSCALER_ALLOCATED: "Runners of the target that the fleet has slots for.",
            names.AUTOSCALER_WARM_DEFICIT: "Runners of load and floor that have no slot.",
            names.AUTOSCALER_MIN_WARM_FLOOR: "Idle runners to keep beyond the load.",
            names.AUTOSCALER_CLAIMED_JOBS: "Jobs that were given to a runner.",
            names.AUTOSCALER_OCCUPIED_RUNNERS: "Runners that are in use.",
            names.AUTOSCALER_QUEUED_JOBS: "Jobs that wait and may be started.",
        }
        self._gauges = {
            metric: gauge(registry, metric.name, text, *metric.labels)
            for metric, text in texts.items()
        }

    def publish(
        self, pool: str, signals: ScalingSignals, decision: Decision, *, floor: int
    ) -> None:
        """Set all metrics of a pool, also those that are zero."""
        load, allocated = desired.load(signals), min(decision.replicas, decision.target)
        deficit = min(load + floor, decision.target) - max(allocated, load)
        values = {
            names.AUTOSCALER_TARGET: decision.target,
            names.AUTOSCALER_ALLOCATED: allocated,
            names.AUTOSCALER_WARM_DEFICIT: max(0, deficit),
            names.AUTOSCALER_MIN_WARM_FLOOR: floor,
            names.AUTOSCALER_CLAIMED_JOBS: signals.claimed,
            names.AUTOSCALER_OCCUPIED_RUNNERS: desired.occupancy(signals),
            names.AUTOSCALER_QUEUED_JOBS: signals.queued,
        }
        for metric, value in values.items():
            self._gauges[metric].of(pool).set(value)

    def forget(self, pool: str) -> None:
        """Drop all metrics of a pool."""
        for each in self._gauges.values():
            each.forget(pool)


@dataclass(slots=True)
class _Pass:
    """The last pass over a fleet; the lock lets one reconcile make it while the others wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    made_at: float = float("-inf")
    result: FleetDecision = field(default_factory=lambda: FleetDecision({}, {}))


@dataclass(frozen=True, slots=True)
class AutoscalerReconciler:
    """Scales each autoscaled pool by its demand and the slots of its fleet."""

    kube: FencedKube
    pools: Cache[RunnerPool]
    nodes: Cache[Node]
    signals: RecentSignals
    recorder: Recorder
    metrics: AutoscalerMetrics
    clock: Clock
    low_demand: dict[Key, LowDemand] = field(default_factory=dict)
    passes: dict[str, _Pass] = field(default_factory=dict)

    async def reconcile(self, pool: RunnerPool) -> Outcome:
        """Decide on the replicas of a pool together with all pools of its fleet, and write what changed."""
        if not is_autoscaled(pool):
            return await self._opt_out(pool)
        state, decision = await self._decide(pool)
        if state.signals is not None:
            self.metrics.publish(pool.name, state.signals, decision, floor=state.floor)
        try:
            await self._scale(pool, decision)
            await self._report(pool, state, decision)
        except errors.NotFound:
            return Settled()
        except errors.Refused as error:
            # Otherwise the pool would not be checked again before it changes.
            logger.warning("Writing RunnerPool failed", reason=error.reason, error=str(error))
            return _NEXT_TICK
        # After the writes: a window that ends with a write that failed has not ended.
        self._remember(key_of(pool), decision.low_demand)
        return _NEXT_TICK

    def forget(self, key: Key) -> None:
        """Drop the state and the metrics of a pool that is gone or not autoscaled any more."""
        self.low_demand.pop(key, None)
        self._drop_unused_passes()
        self.signals.forget(key.name)
        self.metrics.forget(key.name)

    async def _opt_out(self, pool: RunnerPool) -> Outcome:
        self.forget(key_of(pool))
        # An explanation of a decision that does not hold any more would mislead.
        if pool.status.autoscaling is not None and not pool.deleting:
            with suppress(errors.NotFound):
                await self._patch_status(pool, {"autoscaling": None})
        return Settled()

    async def _decide(self, pool: RunnerPool) -> tuple[PoolState, Decision]:
        selector = pool.spec.fleet_selector
        last = self.passes.setdefault(selector, _Pass())
        async with last.lock:
            is_recent = self.clock.monotonic() - last.made_at < PASS_SECONDS
            if not is_recent or not last.result.covers(self._state(pool, None)):
                siblings = self.pools.by_index(BY_FLEET, selector)
                # The given object may be newer than the cache.
                fleet = [pool, *(each for each in siblings if each.name != pool.name)]
                last.result = await self._decide_fleet(fleet)
                last.made_at = self.clock.monotonic()
        return last.result.states[pool.name], last.result.decisions[pool.name]

    async def _decide_fleet(self, fleet: Sequence[RunnerPool]) -> FleetDecision:
        now = self.clock.now()
        nodes = self.nodes.by_index(BY_FLEET, fleet[0].spec.fleet_selector)
        groups = sharing_pools(fleet, [observed_host(node, now) for node in nodes])
        scaled = [pool for group in groups for pool in group.pools]
        signals = await self.signals.of_all(pool.name for pool in scaled)
        states = {pool.name: self._state(pool, signals[pool.name]) for pool in scaled}
        decisions: dict[str, Decision] = {}
        for group in groups:
            decisions |= decide([states[pool.name] for pool in group.pools], group.slots, now)
        return FleetDecision(states, decisions)

    def _state(self, pool: RunnerPool, signals: ScalingSignals | None) -> PoolState:
        autoscaling = pool.spec.autoscaling
        return PoolState(
            name=pool.name,
            replicas=pool.spec.replicas,
            floor=autoscaling.min_warm_pool_floor,
            maximum=autoscaling.max_replicas,
            cooldown=timedelta(seconds=autoscaling.scale_down_cooldown_seconds),
            signals=signals,
            low_demand=self.low_demand.get(key_of(pool)),
        )

    async def _scale(self, pool: RunnerPool, decision: Decision) -> None:
        before = pool.spec.replicas
        if decision.replicas == before:
            return
        logger.info("Scaling pool", replicas=decision.replicas, reason=decision.reason)
        await self.kube.merge_patch(
            RunnerPool,
            pool.name,
            {"spec": {"replicas": decision.replicas}},
            namespace=pool.namespace,
            # A decision on an older spec, such as another maximum, must not be written.
            resource_version=pool.metadata.resource_version,
            uid=pool.uid,
        )
        message = f"Scaled from {before} to {decision.message}"
        self.recorder.event(pool, events.POOL_SCALED, message, action=decision.reason)

    async def _report(self, pool: RunnerPool, state: PoolState, decision: Decision) -> None:
        status: dict[str, Any] = {}
        reported = status_of(pool.status.autoscaling, state.signals, decision)
        if reported != pool.status.autoscaling:
            status["autoscaling"] = _every_field(reported)
        if decision.replicas < pool.spec.replicas:
            status["lastScaleDownAt"] = msgspec.to_builtins(_seconds(self.clock.now()))
        if status:
            await self._patch_status(pool, status)

    async def _patch_status(self, pool: RunnerPool, status: dict[str, Any]) -> None:
        # Without a version: only the autoscaler writes these fields.
        await self.kube.merge_patch(
            RunnerPool,
            pool.name,
            {"status": status},
            namespace=pool.namespace,
            subresource="status",
            uid=pool.uid,
        )

    def _drop_unused_passes(self) -> None:
        for selector, last in list(self.passes.items()):
            if not last.lock.locked() and not self.pools.by_index(BY_FLEET, selector):
                del self.passes[selector]

    def _remember(self, key: Key, low_demand: LowDemand | None) -> None:
        if low_demand is None:
            self.low_demand.pop(key, None)
        else:
            self.low_demand[key] = low_demand


def status_of(
    before: AutoscalingStatus | None, signals: ScalingSignals | None, decision: Decision
) -> AutoscalingStatus:
    """Return the status that explains a decision; without signals it keeps the last inputs."""
    low = decision.low_demand
    explained = msgspec.structs.replace(
        before or AutoscalingStatus(),
        replicas=decision.replicas,
        reason=decision.reason,
        message=decision.message,
        low_demand_since=None if low is None else _seconds(low.since),
    )
    if signals is None:
        return explained
    inputs = msgspec.structs.asdict(signals)
    return msgspec.structs.replace(explained, target=decision.target, **inputs)


def _every_field(status: AutoscalingStatus) -> dict[str, Any]:
    """Return all fields, because a merge patch keeps those that are absent."""
    values = msgspec.to_builtins(status)
    return {
        each.encode_name: values.get(each.encode_name, getattr(status, each.name))
        for each in msgspec.structs.fields(status)
    }


def _seconds(when: datetime) -> datetime:
    return when.replace(microsecond=0)


def add(
    manager: Manager,
    signals: Signals,
    *,
    namespace: str,
    clock: Clock,
    registry: CollectorRegistry,
    settings: SignalSettings | None = None,
) -> None:
    """Add the autoscaler of the pools of one namespace to a manager."""
    pools = manager.informer(RunnerPool, Selection.of(namespace)).cache
    nodes = manager.informer(Node).cache
    pools.index(
        BY_FLEET, lambda pool: [pool.spec.fleet_selector] if pool.spec.os == labels.DARWIN else []
    )
    nodes.index(BY_FLEET, lambda node: [fleet_of(node)])
    reconciler = AutoscalerReconciler(
        kube=manager.kube,
        pools=pools,
        nodes=nodes,
        signals=RecentSignals(signals, clock=clock, settings=settings),
        recorder=manager.recorder(events.RUNNERS_COMPONENT),
        metrics=AutoscalerMetrics(registry),
        clock=clock,
    )
    controller = Controller(reconciler, ControllerSettings(workers=WORKERS), name=NAME)
    manager.add(controller.for_kind(RunnerPool, namespace=namespace))
