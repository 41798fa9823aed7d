"""Periods, timeouts and thresholds of the controllers, with the defaults of Kubernetes; tests shorten them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Timings:
    """All settings of the controllers."""

    # Scheduling: backoff of an unschedulable Pod after a change, its maximum, and the retry interval without a change.
    scheduling_backoff: timedelta = timedelta(seconds=1)
    scheduling_max_backoff: timedelta = timedelta(seconds=10)
    scheduling_retry: timedelta = timedelta(minutes=5)
    # Node lifecycle: how often heartbeats are checked, their grace period, and that of a Node without any status yet.
    node_monitor_period: timedelta = timedelta(seconds=5)
    node_monitor_grace: timedelta = timedelta(seconds=50)
    node_startup_grace: timedelta = timedelta(seconds=60)
    # Interval between two Nodes that are tainted for eviction: normally, and in a large zone that is partially disrupted.
    # In a smaller disrupted zone, and when no Node is ready, evictions stop.
    eviction_interval: timedelta = timedelta(seconds=10)
    eviction_interval_disrupted: timedelta = timedelta(seconds=100)
    disrupted_share: float = 0.55
    large_cluster: int = 50
    # Pod garbage collection: how often, how many terminated Pods are kept, and how long a Node must be missing.
    pod_gc_period: timedelta = timedelta(seconds=20)
    terminated_pod_threshold: int = 12_500
    quarantine: timedelta = timedelta(seconds=40)
    # Events: how long they are kept, and how often expired ones are deleted.
    event_ttl: timedelta = timedelta(hours=1)
    event_ttl_period: timedelta = timedelta(minutes=1)
    # Namespaces: delay between the deletion and the first cleanup, so that writers observe the deletion first.
    namespace_cleanup_delay: timedelta = timedelta(seconds=5)
    # How soon the cleanup is repeated while content remains.
    namespace_retry: timedelta = timedelta(seconds=5)
    # Garbage collection: how often discovery runs (changed definitions trigger it at once), and the first retry delay of
    # an object.
    garbage_discovery_period: timedelta = timedelta(minutes=5)
    garbage_retry: timedelta = timedelta(milliseconds=100)
    # Disruption budgets: how long an evicted Pod counts as disrupted until its deletion must be observed.
    disruption_deletion_timeout: timedelta = timedelta(minutes=2)


DEFAULT = Timings()
