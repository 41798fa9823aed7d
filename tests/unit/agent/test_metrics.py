"""The agent's metrics: the names that dashboards use, and the series that are removed with their object."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from bramley.agent import metrics
from bramley.agent.metrics import AgentMetrics
from bramley.api.names import metrics as names

OLD = [
    names.VM_BOOT_DURATION,
    names.POD_PROVISION_DELAY,
    names.VM_PROVISION_WORK,
    names.GOLDEN_BASE_MATERIALIZED,
    names.GOLDEN_BASE_REUSED,
    names.GUEST_DISK_USAGE,
]


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


@pytest.mark.parametrize("metric", OLD, ids=lambda metric: metric.name)
def test_metrics_of_existing_dashboards_exist(metric: names.Metric) -> None:
    registry = CollectorRegistry()
    AgentMetrics(registry)

    families = {family.name: family.type for family in registry.collect()}

    assert families[metric.name.removesuffix("_total")] == metric.type


def test_buckets_are_those_of_the_contract() -> None:
    registry = CollectorRegistry()
    counted = AgentMetrics(registry)

    counted.provision_delay.of("large").observe(1700)

    name = f"{names.POD_PROVISION_DELAY.name}_bucket"
    for edge, count in (("1200.0", 0), ("1800.0", 1), ("3600.0", 1)):
        assert sample(registry, name, pool="large", le=edge) == count


@pytest.mark.parametrize(("is_warm", "path"), [(True, "warm"), (False, "cold")])
def test_vm_is_counted_by_the_source_of_its_disk(is_warm: bool, path: str) -> None:
    registry = CollectorRegistry()

    AgentMetrics(registry).observe_provisioning("large", 3, is_warm=is_warm)

    work = f"{names.VM_PROVISION_WORK.name}_sum"
    assert sample(registry, work, pool="large", path=path) == 3
    reused = sample(registry, names.GOLDEN_BASE_REUSED.name, pool="large")
    made = sample(registry, names.GOLDEN_BASE_MATERIALIZED.name, pool="large")
    assert (reused, made) == ((1, None) if is_warm else (None, 1))


def test_series_of_a_deleted_guest_are_removed() -> None:
    registry = CollectorRegistry()
    counted = AgentMetrics(registry)

    counted.set_guest_disks({"a": 40, "b": 50})
    counted.set_guest_disks({"b": 60})

    assert sample(registry, names.GUEST_DISK_USAGE.name, vm="a") is None
    assert sample(registry, names.GUEST_DISK_USAGE.name, vm="b") == 60


def test_metrics_of_alerts_start_at_zero() -> None:
    registry = CollectorRegistry()
    AgentMetrics(registry)

    for operation in metrics.OPERATIONS:
        assert sample(registry, names.TART_TIMEOUTS.name, operation=operation) == 0
    for result in ("done", "failed"):
        assert sample(registry, names.TOKEN_RENEWALS.name, result=result) == 0
