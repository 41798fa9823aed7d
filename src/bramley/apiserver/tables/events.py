"""The row of an event, old or new style; it is shown as the core group stores it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bramley.apiserver.tables.durations import since
from bramley.apiserver.tables.fields import Json, find


def row(event: Json, now: datetime) -> list[Any]:
    """Return an event's cells."""
    first = since(event.get("firstTimestamp") or event.get("eventTime"), now)
    series = event.get("series")
    last = since(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    return [
        since(series.get("lastObservedTime"), now) if series else last,
        event.get("type", ""),
        event.get("reason", ""),
        _target(event.get("involvedObject") or {}),
        find(event, "involvedObject.fieldPath") or "",
        _source(event),
        (event.get("message") or "").strip(),
        first,
        series.get("count", 0) if series else event.get("count") or 1,
        event["metadata"].get("name", ""),
    ]


def _target(involved: Json) -> str:
    kind = str(involved.get("kind", "")).lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _source(event: Json) -> str:
    component = find(event, "source.component") or event.get("reportingComponent") or ""
    instance = find(event, "source.host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component
