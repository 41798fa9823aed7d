"""Every metric of the runtime, declared once per registry; `docs/reference/metrics.md` explains them.

Depths, ages and counts of objects are functions that a scrape calls, so they cost the hot path nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from bramley.base.counters import Counter, Histogram
from bramley.base.metrics import LATENCY_BUCKETS, gauge


class LabelledCounter(Collector):
    """A counter with labels."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._children: dict[tuple[str, ...], Counter] = {}
        registry.register(self)

    def of(self, *values: str) -> Counter:
        """Return the child with these label values."""
        child = self._children.get(values)
        return child or self._children.setdefault(values, Counter())

    def describe(self) -> Iterable[Metric]:
        """Return the metric without samples."""
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """Return the metric with its samples."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            family.add_metric(values, child.value)
        yield family


class LabelledHistogram(Collector):
    """A histogram with labels."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._children: dict[tuple[str, ...], Histogram] = {}
        registry.register(self)

    def of(self, *values: str) -> Histogram:
        """Return the child with these label values."""
        child = self._children.get(values)
        return child or self._children.setdefault(values, Histogram(LATENCY_BUCKETS))

    def describe(self) -> Iterable[Metric]:
        """Return the metric without samples."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """Return the metric with its samples."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            child.add_to(family, values)
        yield family


class RuntimeMetrics:
    """The runtime's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._declare_queues(registry)
        self._declare_reconciles(registry)
        self._declare_caches(registry)
        self._declare_leading_and_events(registry)

    def _declare_queues(self, registry: CollectorRegistry) -> None:
        self.queue_depth = gauge(
            registry, "bramley_queue_depth", "Keys waiting for a worker.", "controller"
        )
        self.queue_adds = LabelledCounter(
            registry, "bramley_queue_adds_total", "Keys added to the queue.", "controller"
        )
        self.queue_latency = LabelledHistogram(
            registry,
            "bramley_queue_latency_seconds",
            "Time from adding a key to its processing.",
            "controller",
        )
        self.queue_retries = LabelledCounter(
            registry,
            "bramley_queue_retries_total",
            "Keys added again after a failure.",
            "controller",
        )
        self.longest_running = gauge(
            registry,
            "bramley_queue_longest_running_seconds",
            "Age of the oldest running reconcile.",
            "controller",
        )

    def _declare_reconciles(self, registry: CollectorRegistry) -> None:
        self.work_duration = LabelledHistogram(
            registry,
            "bramley_reconcile_duration_seconds",
            "Duration of one reconcile.",
            "controller",
        )
        self.outcomes = LabelledCounter(
            registry,
            "bramley_reconcile_outcomes_total",
            "Reconciles by outcome.",
            "controller",
            "outcome",
            "reason",
        )
        self.mapping_bugs = LabelledCounter(
            registry,
            "bramley_wake_bugs_total",
            "Changes whose mapping to keys failed, so that all keys were enqueued.",
            "controller",
        )

    def _declare_caches(self, registry: CollectorRegistry) -> None:
        self.watch_restarts = LabelledCounter(
            registry, "bramley_watch_restarts_total", "Watches that ended.", "kind", "reason"
        )
        self.relists = LabelledCounter(
            registry, "bramley_cache_relists_total", "Lists read into the cache.", "kind", "reason"
        )
        self.rewinds = LabelledCounter(
            registry,
            "bramley_cache_rewinds_total",
            "Lists older than the cache that were accepted.",
            "kind",
        )
        self.undecodable = LabelledCounter(
            registry,
            "bramley_watch_undecodable_total",
            "Watch events that could not be decoded.",
            "kind",
        )
        self.cache_age = gauge(
            registry,
            "bramley_cache_age_seconds",
            "Seconds since the last answer of the server.",
            "kind",
        )
        self.cache_objects = gauge(
            registry, "bramley_cache_objects", "Objects in the cache.", "kind"
        )

    def _declare_leading_and_events(self, registry: CollectorRegistry) -> None:
        self.leader = gauge(
            registry, "bramley_leader", "1 while this process holds the lease.", "lease"
        )
        self.leader_epoch = gauge(
            registry, "bramley_leader_epoch", "Fencing epoch last held or observed.", "lease"
        )
        self.events_written = LabelledCounter(
            registry, "bramley_events_written_total", "Events created or incremented.", "verb"
        )
        self.events_dropped = LabelledCounter(
            registry, "bramley_events_dropped_total", "Events not written.", "reason"
        )
