"""`/metrics`: the metrics of requests, the store and the audit log in Prometheus' text format.

Gauges are read from their sources at each scrape, so that no code has to keep them up to date.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from bramley.api.names import metrics as names
from bramley.apiserver.server.limits import Limits
from bramley.apiserver.server.request_metrics import MetricSources, RequestMetrics
from bramley.apiserver.store.sqlite_file import MeasuredDisk
from bramley.apiserver.store.store import Store
from bramley.base.counters import Histogram

__all__ = ["CONTENT_TYPE", "ApiMetrics", "text"]

CONTENT_TYPE = CONTENT_TYPE_LATEST


def text(sources: MetricSources) -> bytes:
    """Return the page, with the metrics of the controllers if they run in this process."""
    registry = CollectorRegistry()
    ApiMetrics(registry, sources)
    # A hundred series have thousands of lines; rendered by the library they would block the event loop noticeably.
    page = "".join(_requests(sources.requests)).encode() + generate_latest(registry)
    return page if sources.controllers is None else page + generate_latest(sources.controllers)


class ApiMetrics(Collector):
    """The metrics of one API in one registry."""

    def __init__(self, registry: CollectorRegistry, sources: MetricSources) -> None:
        self._sources = sources
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: no other collector is registered whose names could clash."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics at a scrape."""
        sources = self._sources
        yield _gauge(names.API_IN_FLIGHT, "Requests in flight.", _in_flight(sources.limits))
        yield from _store(sources.store)
        if sources.store.disk is not None:
            yield from _disk(sources.store.disk)
        if sources.audit is not None:
            yield _count(names.AUDIT_LINES, "Lines of the audit log.", sources.audit.lines)
            yield _count(
                names.AUDIT_LINES_LOST, "Lines that the audit log lost.", sources.audit.lost
            )


def _requests(requests: RequestMetrics) -> Iterator[str]:
    """Yield the lines about requests; their label values are names that need no escaping."""
    total, duration = names.API_REQUESTS, names.API_REQUEST_DURATION
    lines: dict[str, list[str]] = {total.name: [], duration.name: []}
    for labels, series in requests.series.items():
        pairs = zip(duration.labels, labels, strict=True)
        labelled = ",".join(f'{label}="{value}"' for label, value in pairs)
        lines[total.name] += (
            f'{total.name}{{{labelled},code="{code}"}} {count}\n'
            for code, count in series.codes.items()
        )
        lines[duration.name] += _histogram(duration.name, labelled, series.seconds)
    for metric, help_text in (
        (total, "Answered requests."),
        (duration, "Time to the complete response."),
    ):
        yield f"# HELP {metric.name} {help_text}\n# TYPE {metric.name} {metric.type}\n"
        yield from lines[metric.name]


def _histogram(name: str, labelled: str, histogram: Histogram) -> Iterator[str]:
    buckets = histogram.buckets()
    for bound, count in buckets:
        yield f'{name}_bucket{{{labelled},le="{bound}"}} {count}\n'
    yield f"{name}_count{{{labelled}}} {buckets[-1][1]}\n{name}_sum{{{labelled}}} {histogram.sum}\n"


def _in_flight(limits: Limits) -> dict[str, float]:
    return {
        "common": limits.common.in_flight,
        "urgent": limits.urgent.in_flight,
        "longrunning": limits.watches.in_flight,
    }


def _store(store: Store) -> Iterator[Metric]:
    kinds = store.caches.items()
    objects = {name: len(kind.table) for name, kind in kinds if len(kind.table)}
    watchers = {name: len(kind.watchers) for name, kind in kinds if kind.watchers}
    damage = store.damage
    yield _gauge(names.API_WATCHERS, "Open watches.", watchers)
    yield _gauge(names.STORE_REVISION, "Newest durable revision.", store.revision)
    yield _gauge(names.STORE_PENDING_WRITES, "Writes that are not durable yet.", store.pending)
    yield _gauge(names.STORE_OBJECTS, "Stored objects.", objects)
    quarantined = Counter(key.resource for key in damage.quarantined)
    yield _gauge(names.STORE_DAMAGED_OBJECTS, "Damaged objects in quarantine.", quarantined)
    unreadable = Counter(key.resource for key in damage.unreadable(store.get))
    yield _gauge(names.STORE_MISFIT_OBJECTS, "Objects with fields that cannot be read.", unreadable)


def _disk(disk: MeasuredDisk) -> Iterator[Metric]:
    yield _gauge(names.STORE_FILE_BYTES, "Size of the store's files.", dict(disk.sizes_bytes()))
    commits = HistogramMetricFamily(names.STORE_COMMIT_DURATION.name, "Duration of one commit.")
    disk.commits.add_to(commits)
    yield commits
    yield _count(names.STORE_COMMIT_FAILURES, "Failed commits.", disk.failures.value)


def _gauge(metric: names.Metric, help_text: str, values: Mapping[str, float] | float) -> Metric:
    if not isinstance(values, Mapping):
        return GaugeMetricFamily(metric.name, help_text, value=values)
    family = GaugeMetricFamily(metric.name, help_text, labels=metric.labels)
    for label, value in values.items():
        family.add_metric((label,), value)
    return family


def _count(metric: names.Metric, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(metric.name, help_text, value=value)
