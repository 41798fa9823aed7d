"""Plain numbers that a scrape reads: they cost the hot path a tenth of what the Prometheus library's do.

The library guards each of its numbers by a lock, for threads that we do not have. It is not even loaded for these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import HistogramMetricFamily


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

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Tell a scrape what was counted."""
        family.add_metric(labels, self.buckets(), self.sum)

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many values were at most this large, for each bound; the last has none."""
        seen = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), seen))
        return buckets
