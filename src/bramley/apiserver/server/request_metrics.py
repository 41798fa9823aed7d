"""What is counted about requests, and what else a scrape of `/metrics` reads; `metrics_page` tells it.

On the path of every request: a look-up and two additions. How many series there can be is bounded, whatever is asked for:
labels come from what is served, never from the text of a path, and beyond a limit all further ones share one series.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bramley.api.names import metrics as names
from bramley.apiserver.auth import attributes
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.http.paths import Target
from bramley.apiserver.rest import routes
from bramley.apiserver.server.audit import Log
from bramley.apiserver.server.limits import Limits
from bramley.apiserver.store.store import Store
from bramley.base.counters import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MOST_SERIES = 2000
OTHER = "other"
_VERBS = {
    "GET": "GET",
    "HEAD": "GET",
    "POST": "POST",
    "PUT": "PUT",
    "PATCH": "PATCH",
    "DELETE": "DELETE",
}
_APPLY = "application/apply-patch+"


class Labels(NamedTuple):
    """What tells one series from another, with the meanings that a kube-apiserver gives them."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class Series:
    """Requests of one sort: how many were answered with which code, and how long they took."""

    __slots__ = ("codes", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.seconds = Histogram(names.API_REQUEST_DURATION.buckets)

    def count(self, code: int, seconds: float) -> None:
        """Count one request."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.seconds.observe(seconds)


class Requests:
    """Counts the requests of one API."""

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self.series: dict[Labels, Series] = {}
        self._most = most_series
        self._known: dict[tuple[object, ...], Series] = {}

    def count(self, request: Request, target: Target | None, *, code: int, seconds: float) -> None:
        """Count one request that was answered."""
        if target is None:
            self._of(Labels(_VERBS.get(request.method, OTHER))).count(code, seconds)
            return
        # The same few sorts come again and again, so their series are found without making the labels.
        sort = (
            _verb(request, target),
            target.resource.qualified,
            target.resource.version,
            target.subresource,
            not target.name,
            not target.namespace,
        )
        series = self._known.get(sort)
        if series is None:
            labels = _labels(sort[0], target)
            series = self._of(labels)
            if labels.subresource == target.subresource and len(self._known) < self._most:
                self._known[sort] = series
        series.count(code, seconds)

    def _of(self, labels: Labels) -> Series:
        series = self.series.get(labels)
        if series is None:
            if len(self.series) >= self._most:
                labels = Labels(OTHER, resource=OTHER)
            series = self.series.setdefault(labels, Series())
        return series


@dataclass(slots=True)
class Meters:
    """All that a scrape reads; the controllers beside the API bring a registry of their own once they run."""

    store: Store
    limits: Limits
    requests: Requests
    audit: Log | None = None
    controllers: CollectorRegistry | None = field(default=None)


def _verb(request: Request, target: Target) -> str:
    method = request.method
    if method in {"GET", "HEAD"}:
        if target.legacy_watch:
            return "WATCH"
        if target.name:
            return "GET"
        return "WATCH" if attributes.is_watch(request.query) else "LIST"
    if method == "DELETE":
        return "DELETE" if target.name else "DELETECOLLECTION"
    if method == "PATCH" and request.header(b"content-type").startswith(_APPLY):
        return "APPLY"
    return _VERBS.get(method, OTHER)


def _labels(verb: str, target: Target) -> Labels:
    resource = target.resource
    # Whoever asks for a subresource that is none may call it whatever they like.
    subresource = target.subresource if routes.has_subresource(target) else ""
    return Labels(
        verb, resource.group, resource.version, resource.plural, subresource, _scope(verb, target)
    )


def _scope(verb: str, target: Target) -> str:
    if target.name or verb == "POST":
        return "resource"
    return "namespace" if target.namespace else "cluster"
