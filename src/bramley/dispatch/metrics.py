"""The metrics of dispatch; names, labels and buckets are in `api.names.metrics`, because dashboards depend on them.

Durations are in milliseconds, as the existing panels read them. The gauges of the queue are refreshed by `QueueGauges`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from bramley.api.names import metrics as names
from bramley.api.names.metrics import Metric
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.metrics import Labelled, gauge, histogram
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.jobs import Phase, Report, State
from bramley.dispatch.pod_view import PodView
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store.records import Claim, Job
from bramley.dispatch.store.store import Store

logger = log.get(__name__)

_REFRESH = timedelta(seconds=30)
_MAX_LABEL_VALUES = 1000
_CONCLUSIONS = frozenset(
    {"success", "failure", "cancelled", "skipped", "neutral", "timed_out", "stale", "unknown"}
)


class Counts(Collector):
    """A counter whose name ends in `_count`: the library would append `_total`, which existing panels do not read."""

    def __init__(self, registry: CollectorRegistry, metric: Metric, text: str) -> None:
        self._metric = metric
        self._text = text
        self._values: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def inc(self, *values: str) -> None:
        """Count one with these label values; a bounded number of them is kept apart."""
        if values not in self._values and len(self._values) >= _MAX_LABEL_VALUES:
            values = ("other",) * len(values)
        self._values[values] = self._values.get(values, 0) + 1

    def collect(self) -> Iterator[Family]:
        """Yield the counts of a scrape."""
        family = Family(self._metric.name, self._text, "unknown")
        for values, count in self._values.items():
            family.add_sample(
                self._metric.name, dict(zip(self._metric.labels, values, strict=True)), count
            )
        yield family


class DispatchMetrics:
    """Counts requests, webhooks, claims and jobs. Implements the observers of hand-outs and of the inbox."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._enqueued = Counts(registry, names.JOB_ENQUEUED, "Jobs that were queued for a pool.")
        self._claims = Counts(registry, names.JOB_CLAIM, "Claims by outcome.")
        self._running = Counts(registry, names.JOB_RUNNING, "Jobs that started.")
        self._completed = Counts(registry, names.JOB_COMPLETED, "Jobs that ended, by conclusion.")
        self.requeued = Counts(
            registry, names.JOB_REQUEUED, "Jobs that were returned to the queue."
        )
        self._requests = Counts(registry, names.DISPATCH_REQUEST, "Polls by outcome.")
        self.webhooks = Counts(registry, names.WEBHOOK, "Webhook deliveries by action and outcome.")
        self.refused_requests = Counts(
            registry, names.REFUSED_REQUEST, "Requests that were refused or failed, by reason."
        )
        self.recovery = Counts(registry, names.RECOVERY, "Repairs of the queue by kind.")
        self._queue_time = _histogram(registry, names.JOB_QUEUE_TIME, "From queued to claimed.")
        self._to_running = _histogram(
            registry, names.JOB_QUEUE_TO_RUNNING, "From queued to started."
        )
        self._run_time = _histogram(registry, names.JOB_RUN_TIME, "From started to ended.")
        self._total_time = _histogram(registry, names.JOB_TOTAL_TIME, "From queued to ended.")
        self._claim_to_running = _histogram(
            registry, names.JOB_CLAIM_TO_RUNNING, "From claimed to started."
        )
        self._duration = _histogram(
            registry, names.DISPATCH_REQUEST_DURATION, "Time to answer a poll that was not held."
        )
        self._held_polls = Gauge(
            names.DISPATCH_HELD_POLLS.name, "Long polls that are held.", registry=registry
        )
        self._accounts_file = Gauge(
            names.DISPATCH_ACCOUNTS_FILE_VALID.name,
            "1 if the accounts file is in force, 0 if it became invalid and its last valid content is.",
            registry=registry,
        )
        self._claimed_at: dict[int, datetime] = {}

    def export_held_polls(self, count: Callable[[], int]) -> None:
        """Export how many long polls are held at the time of a scrape."""
        self._held_polls.set_function(count)

    def export_accounts_file(self, is_valid: Callable[[], bool]) -> None:
        """Export whether the accounts file on disk is in force at the time of a scrape."""
        self._accounts_file.set_function(is_valid)

    def request(self, pool: str, outcome: str, seconds: float | None) -> None:
        """Count a poll; `seconds` is None for one that was held."""
        self._requests.inc(pool, outcome)
        if seconds is not None:
            self._duration.of(pool).observe(seconds * 1000)

    def claimed(self, claim: Claim, job: Job) -> None:
        """Count a new claim."""
        self._claims.inc(claim.pool, "won")
        _observe(self._queue_time, claim.pool, job.facts.queued_at, claim.claimed_at)
        self._claimed_at[job.id] = claim.claimed_at
        while len(self._claimed_at) > _MAX_LABEL_VALUES:
            del self._claimed_at[next(iter(self._claimed_at))]

    def claim_failed(self, pool: str, outcome: str) -> None:
        """Count a claim that was given back."""
        self._claims.inc(pool, outcome)
        self.requeued.inc(pool)

    def delivered(self, report: Report, route: Route, state: State) -> None:
        """Count a webhook that was applied, and the job's progress that it reports."""
        self.webhooks.inc(report.phase.name.lower(), state.value if route.pool else "no_pool")
        pool = route.pool
        if not pool:
            return
        if report.phase == Phase.QUEUED:
            self._enqueued.inc(pool)
        elif report.phase == Phase.IN_PROGRESS:
            self._running.inc(pool)
            _observe(self._to_running, pool, report.queued_at, report.started_at)
            claimed = self._claimed_at.pop(report.job_id, None)
            _observe(self._claim_to_running, pool, claimed, report.started_at)
        elif report.phase == Phase.COMPLETED:
            known = report.conclusion in _CONCLUSIONS
            self._completed.inc(pool, report.conclusion if known else "other")
            _observe(self._run_time, pool, report.started_at, report.completed_at)
            _observe(self._total_time, pool, report.queued_at, report.completed_at)

    def refused(self, outcome: str) -> None:
        """Count a webhook that is invalid."""
        self.webhooks.inc("", outcome)


@dataclass(slots=True)
class QueueGauges:
    """The gauges of queue and pools, refreshed every half minute; a pool that vanished is exported as 0 once more, then dropped."""

    registry: CollectorRegistry
    store: Store
    view: PodView
    clock: Clock
    policy: Callable[[], Policy]

    async def run(self) -> None:
        """Refresh for ever."""
        gauges = _Gauges(self.registry)
        while True:
            try:
                await self._refresh(gauges)
            except errors.Unavailable as error:
                logger.warning("Failed to read queue statistics", reason=error.reason)
            await asyncio.sleep(_REFRESH.total_seconds())

    async def _refresh(self, gauges: _Gauges) -> None:
        now = self.clock.now()
        stats = {
            each.pool: each for each in await self.store.queue_stats(now, policy=self.policy())
        }
        pools = {
            pool.name: pool for pool in self.view.pools.cache.all(namespace=self.view.namespace)
        }
        names_now = {*stats, *pools} - {""}
        for name in names_now | gauges.known:
            each, pool = stats.get(name), pools.get(name)
            oldest = each.oldest_queued_at if each else None
            gauges.set(
                name,
                queued=each.queued if each else 0,
                oldest=max((now - oldest).total_seconds(), 0.0) if oldest else 0.0,
                withheld=each.withheld if each else 0,
                claimed=each.claimed if each else 0,
                running=each.running if each else 0,
                desired=pool.spec.replicas if pool else 0,
                observed=(pool.status.observed_replicas or 0) if pool else 0,
                maximum=pool.spec.autoscaling.max_replicas if pool else 0,
            )
        for name in gauges.known - names_now:
            gauges.forget(name)
        gauges.known = names_now


class _Gauges:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.known: set[str] = set()
        self._by_name = {
            "queued": _gauge(registry, names.QUEUE_LENGTH, "Queued jobs."),
            "oldest": _gauge(registry, names.QUEUE_OLDEST_AGE, "Age of the oldest queued job."),
            "withheld": _gauge(
                registry, names.QUEUE_WITHHELD, "Queued jobs beyond the limits of their accounts."
            ),
            "desired": _gauge(registry, names.POOL_REPLICAS_DESIRED, "Desired Pods of the pool."),
            "observed": _gauge(registry, names.POOL_REPLICAS_OBSERVED, "Pods of the pool."),
            "maximum": _gauge(
                registry, names.POOL_REPLICAS_MAX, "Most Pods that the autoscaler may request."
            ),
        }
        self._claims = _gauge(registry, names.CLAIMS, "Live claims by state.")

    def set(self, pool: str, **values: float) -> None:
        for state in ("claimed", "running"):
            self._claims.of(pool, state).set(values[state])
        for name, each in self._by_name.items():
            each.of(pool).set(values[name])

    def forget(self, pool: str) -> None:
        for state in ("claimed", "running"):
            self._claims.forget(pool, state)
        for each in self._by_name.values():
            each.forget(pool)


def _gauge(registry: CollectorRegistry, metric: Metric, text: str) -> Labelled[Gauge]:
    return gauge(registry, metric.name, text, *metric.labels)


def _histogram(registry: CollectorRegistry, metric: Metric, text: str) -> Labelled[Histogram]:
    return histogram(registry, metric.name, text, *metric.labels, buckets=metric.buckets)


def _observe(
    metric: Labelled[Histogram], pool: str, start: datetime | None, end: datetime | None
) -> None:
    if start is not None and end is not None:
        metric.of(pool).observe(max((end - start).total_seconds(), 0.0) * 1000)
