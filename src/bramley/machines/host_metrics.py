"""The metrics of rented hosts; their names are in `api.names.metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from bramley.api.names import metrics as names
from bramley.base.metrics import counter, gauge
from bramley.machines.host_ownership import HostUse


class HostMetrics:
    """Rented hosts by use, those in quarantine, those without an owner, and failures of the sweep."""

    def __init__(self, registry: CollectorRegistry) -> None:
        hosts, failures = names.HOSTS, names.HOST_SWEEP_FAILURES
        self._hosts = gauge(registry, hosts.name, "Rented hosts by use.", *hosts.labels)
        self._failures = counter(
            registry,
            failures.name,
            "Steps of the sweep of hosts that have failed.",
            *failures.labels,
        )
        self._quarantined = Gauge(
            names.QUARANTINED_HOSTS.name, "Hosts in quarantine.", registry=registry
        )
        self._orphans = Gauge(
            names.ORPHAN_SERVERS.name, "Hosts that have no owner.", registry=registry
        )
        self._reclaimed = Counter(
            names.ORPHAN_SERVERS_RECLAIMED.name,
            "Hosts without an owner that were put back into the pool.",
            registry=registry,
        )
        # The series of each zone, by type and state.
        self._series: dict[str, set[tuple[str, str]]] = {}

    def set_hosts(self, zone: str, counts: Mapping[tuple[str, HostUse], int]) -> None:
        """Export the hosts of a zone by type and use, and nothing else of this zone."""
        values = {(type, use.value): count for (type, use), count in counts.items()}
        for type, use in self._series.pop(zone, set()) - values.keys():
            self._hosts.forget(zone, type, use)
        for (type, use), count in values.items():
            self._hosts.of(zone, type, use).set(count)
        if values:
            self._series[zone] = set(values)

    def forget_zones_except(self, zones: Iterable[str]) -> None:
        """Drop the series of zones that are not listed any more."""
        for zone in self._series.keys() - set(zones):
            self.set_hosts(zone, {})

    def set_quarantined(self, hosts: int) -> None:
        """Export the number of hosts in quarantine."""
        self._quarantined.set(hosts)

    def set_orphans(self, hosts: int) -> None:
        """Export the number of hosts without an owner."""
        self._orphans.set(hosts)

    def count_reclaimed(self) -> None:
        """Count a host that was put back into the pool."""
        self._reclaimed.inc()

    def count_failure(self, step: str) -> None:
        """Count a step of the sweep that has failed."""
        self._failures.of(step).inc()
