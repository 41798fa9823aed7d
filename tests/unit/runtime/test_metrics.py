from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from bramley.base.metrics import LATENCY_BUCKETS
from bramley.runtime.metrics import LabelledCounter, LabelledHistogram

VALUES = [0.0001, 0.0005, 0.02, 3, 60, 61, 1e9]


def test_scrape_is_the_same_as_the_library_s() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    our_counter = LabelledCounter(ours, "apples_total", "Apples.", "colour")
    our_histogram = LabelledHistogram(ours, "wait_seconds", "Waits.", "colour")
    counter = Counter("apples_total", "Apples.", ["colour"], registry=theirs)
    histogram = Histogram(
        "wait_seconds", "Waits.", ["colour"], registry=theirs, buckets=LATENCY_BUCKETS
    )
    for value in VALUES:
        our_counter.of("red").inc(2)
        counter.labels("red").inc(2)
        our_histogram.of("red").observe(value)
        histogram.labels("red").observe(value)

    assert lines(ours) == lines(theirs)


def lines(registry: CollectorRegistry) -> list[str]:
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if "_created" not in line]


def test_name_cannot_be_declared_twice() -> None:
    registry = CollectorRegistry()
    LabelledCounter(registry, "apples_total", "Apples.")

    with pytest.raises(ValueError, match="Duplicated"):
        LabelledCounter(registry, "apples_total", "Apples.")
