"""One object or a list of them in the form that a client asked for.

Plain objects go out as they are stored; only tables make us decode them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from bramley.apiserver.http.exchange import Response
from bramley.apiserver.kinds.virtual import SCALE
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest.negotiation import META_GROUP, Form, View, reformed
from bramley.apiserver.store.damage import DECODE_ERRORS
from bramley.base.clock import Clock

if TYPE_CHECKING:
    from bramley.apiserver.tables.columns import Printer

_MARKED = b'"k8s.io/initial-events-end"'


def reshaped(answer: Response, resource: ServedResource, view: View, clock: Clock) -> Response:
    """Return an answer about one object in the form that was asked for; anything else stays as it is."""
    if answer.body.startswith(SCALE.prefix):
        resource = _scale_of(resource)
    if not answer.body.startswith(resource.prefix):
        return answer
    return structs.replace(answer, body=one(answer.body, resource, view, now=clock.now))


def _scale_of(resource: ServedResource) -> ServedResource:
    from bramley.apiserver.tables import printers

    return replace(SCALE, printer=partial(printers.scale_printer, of_custom=resource.is_custom))


def one(
    body: bytes,
    resource: ServedResource,
    view: View,
    *,
    now: Callable[[], datetime],
    with_columns: bool = True,
) -> bytes:
    """Return one object in a form; `now` is called only if the time matters."""
    if view.form is Form.PLAIN:
        return body
    if view.form is Form.METADATA:
        return reformed(body, view.version)
    version = msgspec.json.decode(body)["metadata"].get("resourceVersion", "")
    meta = {"resourceVersion": version}
    return table([body], resource, view, now=now(), meta=meta, with_columns=with_columns)


def table(
    bodies: Sequence[bytes],
    resource: ServedResource,
    view: View,
    *,
    now: datetime,
    meta: Json,
    with_columns: bool = True,
) -> bytes:
    """Return objects as the rows of a table."""
    printer = printer_of(resource)
    rows = [_row(body, resource, view, printer, now) for body in bodies]
    told = {
        "kind": "Table",
        "apiVersion": f"{META_GROUP}/{view.version}",
        "metadata": meta,
        "columnDefinitions": printer.definitions if with_columns else None,
        "rows": None if printer.is_default and not rows else rows,
    }
    return msgspec.json.encode(told)


def printer_of(resource: ServedResource) -> Printer:
    """Return how a kind is shown."""
    if resource.printer is not None:
        return resource.printer()
    # Clients that are programs never ask for tables.
    from bramley.apiserver.tables import printers

    return printers.printer(resource.qualified)


def _row(
    body: bytes, resource: ServedResource, view: View, printer: Printer, now: datetime
) -> Json:
    decoded: Json = msgspec.json.decode(body)
    if resource.conversion is not None and not resource.is_custom:
        # The columns are those of the stored kind.
        decoded = resource.conversion.to_stored(decoded)
    try:
        cells = printer.row(decoded, now)
    except DECODE_ERRORS:
        # One object of a wrong form must not hide the others, nor itself.
        return {"cells": _only_name(decoded, printer), "object": _included(body, view)}
    made: Json = {"cells": cells}
    if printer.conditions is not None and (conditions := printer.conditions(decoded)):
        made["conditions"] = conditions
    made["object"] = _included(body, view)
    return made


def _only_name(decoded: Json, printer: Printer) -> list[str]:
    return [decoded["metadata"]["name"], *["<unknown>"] * (len(printer.definitions) - 1)]


def _included(body: bytes, view: View) -> msgspec.Raw | None:
    if view.include == "Object":
        return msgspec.Raw(body)
    # Whoever waits for the end of what was there must see its mark, whatever they asked for.
    if view.include == "None" and _MARKED not in body:
        return None
    return msgspec.Raw(reformed(body, view.version))
