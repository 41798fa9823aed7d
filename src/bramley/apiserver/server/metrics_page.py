"""`/metrics`: what was counted about requests, the store and the audit log, as Prometheus reads it.

Whatever has a state of its own is asked at the scrape, so that nobody has to keep gauges up to date.
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
from bramley.apiserver.server.request_metrics import Meters, Requests
from bramley.apiserver.store.sqlite_file import MeasuredDisk
from bramley.apiserver.store.store import Store
from bramley.base.counters import Histogram

__all__ = ["CONTENT_TYPE", "ApiMetrics", "text"]

CONTENT_TYPE = CONTENT_TYPE_LATEST


def text(meters: Meters) -> bytes:
    """Return the page, with what the controllers beside the API counted."""
    registry = CollectorRegistry()
    ApiMetrics(registry, meters)
    # A hundred sorts of requests have thousands of lines; through the library they would hold up everybody for a moment.
    page = "".join(_requests(meters.requests)).encode() + generate_latest(registry)
    return page if meters.controllers is None else page + generate_latest(meters.controllers)


class ApiMetrics(Collector):
    """The metrics of one API in one registry."""

    def __init__(self, registry: CollectorRegistry, meters: Meters) -> None:
        self._meters = meters
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Tell the registry nothing: there is nobody beside us whose names could be the same."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Answer a scrape."""
        meters = self._meters
        yield _gauge(names.API_IN_FLIGHT, "Requests under way.", _in_flight(meters.limits))
        yield from _store(meters.store)
        if meters.store.disk is not None:
            yield from _disk(meters.store.disk)
        if meters.audit is not None:
            yield _count(names.AUDIT_LINES, "Lines of the audit log.", meters.audit.lines)
            yield _count(names.AUDIT_LINES_LOST, "Lines it lost.", meters.audit.lost)


def _requests(requests: Requests) -> Iterator[str]:
    """Yield the lines about requests; the values of their labels are names that need no escape."""
    told, took = names.API_REQUESTS, names.API_REQUEST_DURATION
    lines: dict[str, list[str]] = {told.name: [], took.name: []}
    for labels, series in requests.series.items():
        pairs = zip(took.labels, labels, strict=True)
        sort = ",".join(f'{label}="{value}"' for label, value in pairs)
        lines[told.name] += (
            f'{told.name}{{{sort},code="{code}"}} {count}\n' for code, count in series.codes.items()
        )
        lines[took.name] += _spread(took.name, sort, series.seconds)
    for metric, help_text in ((told, "Answered requests."), (took, "Time to the whole answer.")):
        yield f"# HELP {metric.name} {help_text}\n# TYPE {metric.name} {metric.type}\n"
        yield from lines[metric.name]


def _spread(name: str, sort: str, spread: Histogram) -> Iterator[str]:
    buckets = spread.buckets()
    for bound, count in buckets:
        yield f'{name}_bucket{{{sort},le="{bound}"}} {count}\n'
    yield f"{name}_count{{{sort}}} {buckets[-1][1]}\n{name}_sum{{{sort}}} {spread.sum}\n"


def _in_flight(limits: Limits) -> dict[str, float]:
    return {
        "common": limits.common.open,
        "urgent": limits.urgent.open,
        "lasting": limits.watches.open,
    }


def _store(store: Store) -> Iterator[Metric]:
    kinds = store.kinds.items()
    objects = {name: len(kind.table) for name, kind in kinds if len(kind.table)}
    watchers = {name: len(kind.watchers) for name, kind in kinds if kind.watchers}
    damage = store.damage
    yield _gauge(names.API_WATCHERS, "Open watches.", watchers)
    yield _gauge(names.STORE_REVISION, "Newest durable revision.", store.revision)
    yield _gauge(names.STORE_PENDING_WRITES, "Writes on their way to the disk.", store.pending)
    yield _gauge(names.STORE_OBJECTS, "Stored objects.", objects)
    aside = Counter(key.resource for key in damage.aside)
    yield _gauge(names.STORE_DAMAGED_OBJECTS, "Objects set aside as damaged.", aside)
    misfits = Counter(key.resource for key in damage.misfits(store.get))
    yield _gauge(names.STORE_MISFIT_OBJECTS, "Objects that a reader cannot read.", misfits)


def _disk(disk: MeasuredDisk) -> Iterator[Metric]:
    yield _gauge(names.STORE_FILE_BYTES, "Size of the files.", dict(disk.sizes_bytes()))
    commits = HistogramMetricFamily(names.STORE_COMMIT_DURATION.name, "Time of one commit.")
    disk.commits.add_to(commits)
    yield commits
    yield _count(names.STORE_COMMIT_FAILURES, "Failed commits.", disk.failures.value)


def _gauge(metric: names.Metric, told: str, values: Mapping[str, float] | float) -> Metric:
    if not isinstance(values, Mapping):
        return GaugeMetricFamily(metric.name, told, value=values)
    family = GaugeMetricFamily(metric.name, told, labels=metric.labels)
    for label, value in values.items():
        family.add_metric((label,), value)
    return family


def _count(metric: names.Metric, told: str, value: float) -> Metric:
    return CounterMetricFamily(metric.name, told, value=value)
