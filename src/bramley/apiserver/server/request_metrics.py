"""Metrics of requests, and the other sources that a scrape of `/metrics` reads; `metrics_page` renders them.

On the path of every request: a look-up and two additions. The number of series is bounded, whatever clients request:
labels come from the served resources, never from the text of a path, and beyond a limit all further ones share one series.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bramley.api.names import metrics as names
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.rest import routes
from bramley.apiserver.server.audit import AuditLog
from bramley.apiserver.server.limits import Limits
from bramley.apiserver.store.store import Store
from bramley.base.counters import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MAX_SERIES = 2000
OTHER = "other"
# The verbs of RequestInfo, and the methods on paths without a resource, as kube-apiserver's metrics name them.
_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
    "head": "GET",
    "post": "POST",
    "put": "PUT",
}
_APPLY = "application/apply-patch+"


class Labels(NamedTuple):
    """The labels of a series, with the meanings that kube-apiserver gives them."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class Series:
    """Requests with the same labels: the number of responses by code, and the durations."""

    __slots__ = ("codes", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.seconds = Histogram(names.API_REQUEST_DURATION.buckets)

    def count(self, code: int, seconds: float) -> None:
        """Count one request."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.seconds.observe(seconds)


class RequestMetrics:
    """The metrics of one API's requests."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self.series: dict[Labels, Series] = {}
        self._most = max_series
        self._known: dict[tuple[object, ...], Series] = {}

    def count(self, request: Request, target: Target | None, *, code: int, seconds: float) -> None:
        """Count one answered request."""
        if target is None:
            verb = _VERBS.get(request.method.lower(), OTHER)
            self._of(Labels(verb)).count(code, seconds)
            return
        # Requests repeat, so their series is found without building the labels.
        key = (
            _verb(request),
            target.resource.qualified,
            target.resource.version,
            target.subresource,
            not target.name,
            not target.namespace,
        )
        series = self._known.get(key)
        if series is None:
            labels = _labels(key[0], target)
            series = self._of(labels)
            if labels.subresource == target.subresource and len(self._known) < self._most:
                self._known[key] = series
        series.count(code, seconds)

    def _of(self, labels: Labels) -> Series:
        series = self.series.get(labels)
        if series is None:
            if len(self.series) >= self._most:
                labels = Labels(OTHER, resource=OTHER)
            series = self.series.setdefault(labels, Series())
        return series


@dataclass(slots=True)
class MetricSources:
    """Everything that a scrape reads; the controllers add their own registry once they run."""

    store: Store
    limits: Limits
    requests: RequestMetrics
    audit: AuditLog | None = None
    controllers: CollectorRegistry | None = field(default=None)


def _verb(request: Request) -> str:
    verb = request.info.verb
    if verb == "patch" and request.header(b"content-type").startswith(_APPLY):
        return "APPLY"
    return _VERBS.get(verb, OTHER)


def _labels(verb: str, target: Target) -> Labels:
    resource = target.resource
    # A subresource that does not exist has a name chosen by the client.
    subresource = target.subresource if routes.has_subresource(target) else ""
    return Labels(
        verb, resource.group, resource.version, resource.plural, subresource, _scope(verb, target)
    )


def _scope(verb: str, target: Target) -> str:
    if target.name or verb == "POST":
        return "resource"
    return "namespace" if target.namespace else "cluster"
