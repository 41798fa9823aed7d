"""The metrics of the agent, declared once per registry and documented in `docs/reference/metrics.md`.

Names, labels and buckets are in `api.names.metrics`, because dashboards of existing fleets depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bramley.api.names import metrics as names
from bramley.base.metrics import Labelled, counter, gauge, histogram

WARM, COLD = "warm", "cold"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
OPERATIONS = (
    "pull",
    "clone",
    "set",
    "run",
    "stop",
    "delete",
    "get",
    "list",
    "ip",
    "exec",
    "version",
)


class AgentMetrics:
    """The agent's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._declare_provisioning(registry)
        self._declare_operations(registry)
        self._guest_disk = _gauge(
            registry, names.GUEST_DISK_USAGE, "How full the disk of a running guest is."
        )
        self._guests: set[str] = set()

    def _declare_provisioning(self, registry: CollectorRegistry) -> None:
        self.provision_delay = _histogram(
            registry, names.POD_PROVISION_DELAY, "From a Pod's creation to its provisioning."
        )
        self.provision_work = _histogram(
            registry, names.VM_PROVISION_WORK, "Duration of pulling and cloning a VM's image."
        )
        self.vm_boot = _histogram(
            registry, names.VM_BOOT_DURATION, "From a VM's start to its guest's address."
        )
        self.vm_boot_timeouts = _counter(
            registry, names.VM_BOOT_TIMEOUTS, "VMs discarded because their guest had no address."
        )
        self.golden_materialized = _counter(
            registry, names.GOLDEN_BASE_MATERIALIZED, "VMs whose golden base was created first."
        )
        self.golden_reused = _counter(
            registry, names.GOLDEN_BASE_REUSED, "VMs whose golden base existed before."
        )

    def _declare_operations(self, registry: CollectorRegistry) -> None:
        self.tart_timeouts = _counter(
            registry, names.TART_TIMEOUTS, "tart commands killed at their deadline."
        )
        self.clone_duration = _histogram(
            registry, names.CLONE_DURATION, "Duration of `tart clone`, killed ones included."
        )
        self.image_pulls = _counter(registry, names.IMAGE_PULLS, "Image pulls by result.")
        metric = names.IMAGE_PULL_DURATION
        self.image_pull_duration = Histogram(
            metric.name,
            "Duration of successful image pulls.",
            registry=registry,
            buckets=metric.buckets,
        )
        self.token_renewals = _counter(
            registry, names.TOKEN_RENEWALS, "Renewals of the tokens of running guests."
        )
        # A rate counts the first increment only if the counter was exported as zero before.
        for operation in OPERATIONS:
            self.tart_timeouts.of(operation)
        for result in (DONE, FAILED):
            self.token_renewals.of(result)
        for result in (DONE, FAILED, CANCELLED):
            self.image_pulls.of(result)
            self.clone_duration.of(result)

    def observe_provisioning(self, pool: str, seconds: float, *, is_warm: bool) -> None:
        """Observe the provisioning of a VM, and whether its golden base existed."""
        self.provision_work.of(pool, WARM if is_warm else COLD).observe(seconds)
        (self.golden_reused if is_warm else self.golden_materialized).of(pool).inc()

    def set_guest_disks(self, percents: Mapping[str, float]) -> None:
        """Set the disk usage of all running guests; the values of all other guests are removed."""
        for gone in self._guests - percents.keys():
            self._guest_disk.forget(gone)
        for vm, percent in percents.items():
            self._guest_disk.of(vm).set(percent)
        self._guests = set(percents)


def _counter(registry: CollectorRegistry, metric: names.Metric, text: str) -> Labelled[Counter]:
    return counter(registry, metric.name, text, *metric.labels)


def _gauge(registry: CollectorRegistry, metric: names.Metric, text: str) -> Labelled[Gauge]:
    return gauge(registry, metric.name, text, *metric.labels)


def _histogram(registry: CollectorRegistry, metric: names.Metric, text: str) -> Labelled[Histogram]:
    return histogram(registry, metric.name, text, *metric.labels, buckets=metric.buckets)
