"""Counters and histograms with labels for the hot path: tallies by their label values, which a scrape reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from bramley.base.metrics import LATENCY_BUCKETS
from bramley.base.tallies import Count, Spread


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
