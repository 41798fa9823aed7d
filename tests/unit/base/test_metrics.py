from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from bramley.base import metrics


def scraped(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_a_counter_is_scraped_with_its_labels() -> None:
    registry = CollectorRegistry()
    retries = metrics.counter(registry, "queue_retries_total", "Retries.", "queue")

    retries.of("pods").inc()
    retries.of("pods").inc()

    assert 'queue_retries_total{queue="pods"} 2.0' in scraped(registry)


def test_a_forgotten_child_is_no_longer_scraped_and_starts_at_zero() -> None:
    registry = CollectorRegistry()
    depth = metrics.gauge(registry, "queue_depth", "Waiting keys.", "queue")
    depth.of("pods").set(7)

    depth.forget("pods")

    assert 'queue="pods"' not in scraped(registry)
    depth.of("pods").inc()
    assert 'queue_depth{queue="pods"} 1.0' in scraped(registry)


def test_forgetting_an_unknown_child_is_no_error() -> None:
    depth = metrics.gauge(CollectorRegistry(), "queue_depth", "Waiting keys.", "queue")

    depth.forget("pods")


def test_a_name_is_declared_once_per_registry() -> None:
    registry = CollectorRegistry()
    metrics.counter(registry, "a_total", "A.")

    with pytest.raises(ValueError, match="Duplicated"):
        metrics.counter(registry, "a_total", "A.")
