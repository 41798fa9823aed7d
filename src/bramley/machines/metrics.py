"""The metrics of machines and of operations on hosts; their names are in `api.names.metrics`."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Gauge, Histogram

from bramley.api.names import metrics as names
from bramley.base.metrics import Labelled, gauge, histogram


@dataclass(slots=True)
class MachineMetrics:
    """The phase of each machine, and the operations on hosts."""

    registry: CollectorRegistry
    _phases: Labelled[Gauge] = field(init=False)
    _operations: Labelled[Gauge] = field(init=False)
    _durations: Labelled[Histogram] = field(init=False)
    # The labels of the one series of each machine.
    _series: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        phase, operations, duration = (
            names.MACHINE_PHASE,
            names.HOST_OPERATIONS,
            names.HOST_OPERATION_DURATION,
        )
        self._phases = gauge(
            self.registry, phase.name, "1 for the phase of a machine.", *phase.labels
        )
        self._operations = gauge(
            self.registry, operations.name, "Operations on hosts by state.", *operations.labels
        )
        self._durations = histogram(
            self.registry,
            duration.name,
            "How long operations on hosts took.",
            *duration.labels,
            buckets=duration.buckets,
        )

    def set_phase(self, machine: str, fleet: str, phase: str, failure_reason: str) -> None:
        """Export exactly one series of a machine; one without a phase is pending."""
        series = (machine, fleet, phase or "Pending", failure_reason)
        if self._series.get(machine) != series:
            self.forget(machine)
            self._series[machine] = series
            self._phases.of(*series).set(1)

    def forget(self, machine: str) -> None:
        """Drop the series of a machine that is gone."""
        if series := self._series.pop(machine, None):
            self._phases.forget(*series)

    def count_operation(self, operation: str, state: str, change: int) -> None:
        """Add to the number of operations that wait or run."""
        self._operations.of(operation, state).inc(change)

    def observe_operation(self, operation: str, result: str, seconds: float) -> None:
        """Record the duration of an operation that has ended."""
        self._durations.of(operation, result).observe(seconds)
