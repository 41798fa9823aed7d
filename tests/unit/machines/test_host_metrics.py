from __future__ import annotations

from collections import Counter

from prometheus_client import CollectorRegistry

from bramley.api.names import metrics as names
from bramley.machines.host_metrics import HostMetrics
from bramley.machines.host_ownership import HostUse


def series(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels[label] for label in names.HOSTS.labels): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == names.HOSTS.name
    }


def test_hosts_that_are_gone_have_no_series() -> None:
    registry = CollectorRegistry()
    metrics = HostMetrics(registry)
    metrics.set_hosts("a", Counter({("M2-L", HostUse.AVAILABLE): 2, ("M2-L", HostUse.FAILED): 1}))
    metrics.set_hosts("b", Counter({("M2-L", HostUse.AVAILABLE): 3}))
    assert series(registry) == {
        ("a", "M2-L", "available"): 2,
        ("a", "M2-L", "failed"): 1,
        ("b", "M2-L", "available"): 3,
    }

    metrics.set_hosts("a", Counter({("M2-L", HostUse.CLAIMED): 1}))
    metrics.forget_zones_except(["a"])
    assert series(registry) == {("a", "M2-L", "claimed"): 1}


def test_metrics_of_existing_dashboards_exist() -> None:
    registry = CollectorRegistry()
    HostMetrics(registry)
    families = {family.name: family.type for family in registry.collect()}
    for metric in (names.ORPHAN_SERVERS, names.ORPHAN_SERVERS_RECLAIMED, names.QUARANTINED_HOSTS):
        assert families[metric.name.removesuffix("_total")] == metric.type
