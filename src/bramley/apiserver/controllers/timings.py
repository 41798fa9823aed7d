"""How patient the cluster's controllers are: the defaults of the real ones in one place, for tests to shorten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Timings:
    """Every period, grace and threshold of the controllers beside the API."""

    # Scheduling: how soon a Pod that fits nowhere is tried again when something changed, growing to the second, and how
    # soon when nothing did.
    scheduling_backoff: timedelta = timedelta(seconds=1)
    scheduling_backoff_most: timedelta = timedelta(seconds=10)
    scheduling_retry: timedelta = timedelta(minutes=5)
    # Node lifecycle: how often Leases are looked at, and how old one may be, also of a Node that never said anything.
    node_monitor_period: timedelta = timedelta(seconds=5)
    node_monitor_grace: timedelta = timedelta(seconds=50)
    node_startup_grace: timedelta = timedelta(seconds=60)
    # How soon one more unhealthy Node may be given the taint that evicts: normally, and in a large cluster of which most
    # is unhealthy; a smaller one is then left alone, and so is any of which every Node is.
    eviction_interval: timedelta = timedelta(seconds=10)
    eviction_interval_disrupted: timedelta = timedelta(seconds=100)
    disrupted_share: float = 0.55
    large_cluster: int = 50
    # Pod garbage collection: how often, how many ended Pods may stay, and how long a Node must be gone.
    pod_gc_period: timedelta = timedelta(seconds=20)
    terminated_pod_threshold: int = 12_500
    quarantine: timedelta = timedelta(seconds=40)
    # Events: how long they are kept, and how often the old ones are looked for.
    event_ttl: timedelta = timedelta(hours=1)
    event_ttl_period: timedelta = timedelta(minutes=1)
    # Namespaces: how long after its deletion a namespace is emptied, so that whoever writes into it hears of its end first.
    namespace_first_look: timedelta = timedelta(seconds=5)
    # How soon it is looked at again while contents remain; a real cluster does so after each change that it tells.
    namespace_retry: timedelta = timedelta(seconds=5)
    # Garbage collection: how often it looks at what is served (definitions that come or go are noticed at once), and how
    # soon an object that could not be judged is looked at again, growing from there.
    garbage_discovery_period: timedelta = timedelta(minutes=5)
    garbage_retry: timedelta = timedelta(milliseconds=100)
    # Disruption budgets: for how long an evicted Pod counts as going before it is marked as deleted.
    disruption_patience: timedelta = timedelta(minutes=2)


DEFAULT = Timings()
