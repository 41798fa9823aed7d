"""The metrics of the pool controller; names and labels are in `api.names.metrics`, because dashboards depend on them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from bramley.api.names import labels
from bramley.api.names import metrics as names
from bramley.api.names.metrics import Metric
from bramley.api.runner_pool_status import RollPhase
from bramley.base.clock import Clock
from bramley.base.metrics import Labelled, histogram
from bramley.runners import hosts
from bramley.runners.decision import Decision, Fleet, PoolView
from bramley.runners.judgement import Verdict
from bramley.runners.pod_timeouts import Why

_PHASES = ("Pending", "Running", "Unknown")
_ROLL_PHASES: tuple[str, ...] = tuple(phase for phase in get_args(RollPhase) if phase)
_TIMEOUTS = {Why.START_TIMED_OUT: "poller_not_started", Why.UNSCHEDULABLE: "unschedulable"}
_FILTER_REASONS = (
    *(hosts.UNSCHEDULABLE, hosts.NOT_READY),
    *("memory_pressure", "disk_pressure", "pid_pressure"),
)


_GAUGES = {
    names.POOL_ROLLING_PODS: "Pods that a roll is changing.",
    names.POOL_STALE_PODS: "Living Pods with another image than the target.",
    names.POOL_ROLL_CONCURRENCY_CAP: "Pods that a roll may change at once.",
    names.POOL_IDLE_REPLICAS: "Ready Pods without a job.",
    names.POOL_STAGED_HOSTS: "Hosts that have the target image.",
    names.POOL_ROLL_AGE: "Time since the current roll began; 0 outside a roll.",
    names.POOL_LOWEST_WARM: "Fewest Ready Pods since the last roll began.",
    names.POOL_WARM_DEFICIT: "Desired Pods that the fleet has no slots for.",
    names.POOL_OLDEST_PENDING: "Age of the oldest Pod that has not booted.",
    names.POOL_OLDEST_TERMINATING: "Time since the oldest deletion of a Pod that still exists.",
}


class PoolMetrics:
    """The gauges of pools and fleets, set by each pass, and the counters of rolls."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._gauges = {metric: _gauge(registry, metric, text) for metric, text in _GAUGES.items()}
        self._phase = _gauge(registry, names.POOL_PHASE_REPLICAS, "Living Pods by phase.")
        self._roll_phase = _gauge(
            registry, names.POOL_ROLL_PHASE, "1 for the current phase of the roll, otherwise 0."
        )
        self._ready_hosts = _gauge(
            registry, names.FLEET_READY_NODES, "Hosts of a fleet that take Pods."
        )
        self._filtered_hosts = _gauge(
            registry, names.FLEET_FILTERED_NODES, "Hosts of a fleet that take no Pods, by reason."
        )
        self._verdicts = _counter(registry, names.POOL_CANARY_VERDICTS, "Judged images by verdict.")
        self._start_timeouts = _counter(
            registry, names.POOL_START_TIMEOUTS, "Pods replaced because they did not start."
        )
        self._duration = histogram(
            registry,
            names.POOL_ROLL_DURATION.name,
            "Duration of rolls.",
            *names.POOL_ROLL_DURATION.labels,
            buckets=names.ROLL_BUCKETS,
        )
        self._lowest_ready: dict[str, int] = {}

    def observe(self, view: PoolView, fleet: Fleet, decision: Decision) -> None:
        """Set the gauges of a pool and its fleet after a decision."""
        name, state = view.pool.name, decision.state
        alive = [pod for pod in view.pods if pod.is_alive]
        ready = sum(pod.is_ready for pod in alive)
        values = {
            names.POOL_ROLLING_PODS: state.in_flight,
            names.POOL_STALE_PODS: len(state.stale),
            names.POOL_ROLL_CONCURRENCY_CAP: state.cap,
            names.POOL_IDLE_REPLICAS: sum(pod.is_ready and pod.is_idle for pod in alive),
            names.POOL_STAGED_HOSTS: len(decision.states.ready),
            names.POOL_LOWEST_WARM: self._lowest(view, decision, ready),
            names.POOL_WARM_DEFICIT: max(0, state.replicas - decision.share),
        }
        for metric, value in values.items():
            self._gauges[metric].of(name).set(value)
        unbooted = [pod.created_at for pod in alive if not pod.has_started]
        deleted = [pod.deleted_at for pod in view.pods]
        began = decision.rollout.started_at
        self._gauges[names.POOL_ROLL_AGE].of(name).set_function(self._age([began]))
        self._gauges[names.POOL_OLDEST_PENDING].of(name).set_function(self._age(unbooted))
        self._gauges[names.POOL_OLDEST_TERMINATING].of(name).set_function(self._age(deleted))
        for phase in _PHASES:
            self._phase.of(name, phase).set(sum(pod.phase == phase for pod in alive))
        for each in _ROLL_PHASES:
            self._roll_phase.of(name, each).set(each == decision.rollout.phase)
        self._observe_hosts(view.pool.spec.fleet_selector, fleet)

    def forget(self, pool: str) -> None:
        """Drop the series of a pool that is gone."""
        self._lowest_ready.pop(pool, None)
        for metric in self._gauges.values():
            metric.forget(pool)
        self._duration.forget(pool)
        for phase in _PHASES:
            self._phase.forget(pool, phase)
        for each in _ROLL_PHASES:
            self._roll_phase.forget(pool, each)
        for verdict in Verdict:
            self._verdicts.forget(pool, verdict.value)
        for reason in _TIMEOUTS.values():
            self._start_timeouts.forget(pool, reason)

    def _lowest(self, view: PoolView, decision: Decision, ready: int) -> int:
        name = view.pool.name
        has_begun = decision.rollout.started_at is not None
        is_new = has_begun and view.pool.status.roll_started_at is None
        lowest = self._lowest_ready.get(name, ready)
        self._lowest_ready[name] = ready if is_new else min(lowest, ready) if has_begun else lowest
        return self._lowest_ready[name]

    def count(self, name: str, decision: Decision) -> None:
        """Count what a decision ended: a trial, a roll, or Pods that did not start."""
        rollout = decision.rollout
        if rollout.judgement is not None:
            self._verdicts.of(name, rollout.judgement.verdict.value).inc()
        if rollout.duration is not None:
            self._duration.of(name).observe(rollout.duration.total_seconds())
        for each in decision.plan.delete:
            if each.why in _TIMEOUTS:
                self._start_timeouts.of(name, _TIMEOUTS[each.why]).inc()

    def _observe_hosts(self, fleet_selector: str, fleet: Fleet) -> None:
        usable = sum(host.is_usable for host in fleet.hosts)
        self._ready_hosts.of(fleet_selector, labels.DARWIN).set(usable)
        for reason in _FILTER_REASONS:
            count = sum(host.unusable == reason for host in fleet.hosts)
            self._filtered_hosts.of(fleet_selector, labels.DARWIN, reason).set(count)

    def _age(self, times: list[datetime | None]) -> Callable[[], float]:
        """Return the function of the age of the oldest, which grows between two passes."""
        oldest = min((time for time in times if time is not None), default=None)
        if oldest is None:
            return lambda: 0.0
        return lambda: max(0.0, (self._clock.now() - oldest).total_seconds())


class ReaperMetrics:
    """The metrics of reports about stopped Pods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.failed_reports = Counter(
            names.SESSION_REPORT_FAILURES.name,
            "Reports of stopped Pods that failed.",
            registry=registry,
        )


def _counter(registry: CollectorRegistry, metric: Metric, text: str) -> Labelled[Counter]:
    return Labelled(Counter(metric.name, text, metric.labels, registry=registry))


def _gauge(registry: CollectorRegistry, metric: Metric, text: str) -> Labelled[Gauge]:
    return Labelled(Gauge(metric.name, text, metric.labels, registry=registry))
