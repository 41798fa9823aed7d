"""Every metric of the runtime, declared once per registry; `docs/reference/metrics.md` tells people what they mean.

Depths, ages and counts of objects are functions that a scrape calls, so they cost the hot path nothing.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from bramley.base.metrics import gauge
from bramley.runtime.tallies import Counts, Spreads


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
            registry, "bramley_queue_depth", "Keys that wait for a worker.", "controller"
        )
        self.queue_adds = Counts(
            registry, "bramley_queue_adds_total", "Keys that began to wait.", "controller"
        )
        self.queue_latency = Spreads(
            registry, "bramley_queue_latency_seconds", "From add to worker.", "controller"
        )
        self.queue_retries = Counts(
            registry, "bramley_queue_retries_total", "Keys added after a failure.", "controller"
        )
        self.longest_running = gauge(
            registry,
            "bramley_queue_longest_running_seconds",
            "Age of the oldest reconcile that still runs.",
            "controller",
        )

    def _declare_reconciles(self, registry: CollectorRegistry) -> None:
        self.work_duration = Spreads(
            registry, "bramley_reconcile_duration_seconds", "Time of one reconcile.", "controller"
        )
        self.outcomes = Counts(
            registry,
            "bramley_reconcile_outcomes_total",
            "Reconciles by how they ended.",
            "controller",
            "outcome",
            "reason",
        )
        self.mapping_bugs = Counts(
            registry,
            "bramley_wake_bugs_total",
            "Changes whose mapping to keys failed, so that every key was woken.",
            "controller",
        )

    def _declare_caches(self, registry: CollectorRegistry) -> None:
        self.watch_restarts = Counts(
            registry, "bramley_watch_restarts_total", "Watches that ended.", "kind", "reason"
        )
        self.relists = Counts(
            registry, "bramley_cache_relists_total", "Whole lists read.", "kind", "reason"
        )
        self.rewinds = Counts(
            registry, "bramley_cache_rewinds_total", "Lists older than the cache believed.", "kind"
        )
        self.undecodable = Counts(
            registry, "bramley_watch_undecodable_total", "Events not understood.", "kind"
        )
        self.cache_age = gauge(
            registry, "bramley_cache_age_seconds", "Since the server was last heard.", "kind"
        )
        self.cache_objects = gauge(
            registry, "bramley_cache_objects", "Objects in the cache.", "kind"
        )

    def _declare_leading_and_events(self, registry: CollectorRegistry) -> None:
        self.leader = gauge(
            registry, "bramley_leader", "One while this process holds the lease.", "lease"
        )
        self.leader_epoch = gauge(
            registry, "bramley_leader_epoch", "Fencing epoch last held or seen.", "lease"
        )
        self.events_written = Counts(
            registry, "bramley_events_written_total", "Events created or counted up.", "verb"
        )
        self.events_dropped = Counts(
            registry, "bramley_events_dropped_total", "Events not written.", "reason"
        )
