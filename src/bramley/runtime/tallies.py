"""Counters and histograms for the hot path: plain numbers that a scrape reads.

The Prometheus library guards each of its numbers by a lock, for threads that we do not have; a tally costs a tenth of that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from bramley.base.metrics import LATENCY_BUCKETS


class Count:
    """A number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        """Add to it."""
        self.value += amount


class Spread:
    """How many values fell into which range, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: tuple[str, ...]) -> None:
        """Tell a scrape what was counted."""
        seen = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), seen))
        family.add_metric(labels, buckets, self._sum)


class Counts(Collector):
    """A counter with labels."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._children: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def of(self, *values: str) -> Count:
        """Return the child with these label values."""
        child = self._children.get(values)
        return child or self._children.setdefault(values, Count())

    def describe(self) -> Iterable[Metric]:
        """Tell the registry the name without reading the numbers."""
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """Answer a scrape."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            family.add_metric(values, child.value)
        yield family


class Spreads(Collector):
    """A histogram with labels."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._children: dict[tuple[str, ...], Spread] = {}
        registry.register(self)

    def of(self, *values: str) -> Spread:
        """Return the child with these label values."""
        child = self._children.get(values)
        return child or self._children.setdefault(values, Spread(LATENCY_BUCKETS))

    def describe(self) -> Iterable[Metric]:
        """Tell the registry the name without reading the numbers."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """Answer a scrape."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            child.add_to(family, values)
        yield family
