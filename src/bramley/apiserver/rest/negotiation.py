"""Content negotiation: objects as JSON, as their metadata only, or as rows of a table. Other encodings are ignored.

A client that accepts several forms gets the first supported one. Only tables decode the stored objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.kinds.virtual import SCALE
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.store.damage import DECODE_ERRORS
from bramley.base.clock import Clock

if TYPE_CHECKING:
    from bramley.apiserver.tables.columns import Printer


_MARKED = b'"k8s.io/initial-events-end"'
META_GROUP = "meta.k8s.io"
_WHOLE = frozenset({"", "application/json", "*/*"})
_JSON = frozenset({"application/json", "application/*", "*/*"})
_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%b}'
_META_VERSIONS = frozenset({"v1", "v1beta1"})
_TRANSFORMS = frozenset({"as", "g", "v"})
_INCLUDED = frozenset({"", "None", "Metadata", "Object"})


class Form(Enum):
    """The forms in which objects can be shown."""

    PLAIN = auto()
    METADATA = auto()
    TABLE = auto()


class View(msgspec.Struct, frozen=True):
    """A form with its version, and for tables what each row includes of its object."""

    form: Form
    version: str = "v1"
    include: str = ""


def convert_response(
    answer: Response, resource: ServedResource, view: View, clock: Clock
) -> Response:
    """Return a response with one object in the requested form; other responses are returned unchanged."""
    if answer.body.startswith(SCALE.prefix):
        resource = _scale_of(resource)
    if not answer.body.startswith(resource.prefix):
        return answer
    return structs.replace(answer, body=convert_object(answer.body, resource, view, now=clock.now))


def _scale_of(resource: ServedResource) -> ServedResource:
    from bramley.apiserver.tables import printers

    return replace(SCALE, printer=partial(printers.scale_printer, of_custom=resource.is_custom))


def convert_object(
    body: bytes,
    resource: ServedResource,
    view: View,
    *,
    now: Callable[[], datetime],
    with_columns: bool = True,
) -> bytes:
    """Return one object in the requested form; `now` is called only for tables."""
    if view.form is Form.PLAIN:
        return body
    if view.form is Form.METADATA:
        return metadata_only(body, view.version)
    version = msgspec.json.decode(body)["metadata"].get("resourceVersion", "")
    meta = {"resourceVersion": version}
    return encode_table([body], resource, view, now=now(), meta=meta, with_columns=with_columns)


def encode_table(
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
    document = {
        "kind": "Table",
        "apiVersion": f"{META_GROUP}/{view.version}",
        "metadata": meta,
        "columnDefinitions": printer.definitions if with_columns else None,
        "rows": None if printer.is_default and not rows else rows,
    }
    return msgspec.json.encode(document)


def printer_of(resource: ServedResource) -> Printer:
    """Return the printer of a kind."""
    if resource.printer is not None:
        return resource.printer()
    # Imported here, because only kubectl requests tables.
    from bramley.apiserver.tables import printers

    return printers.printer(resource.qualified)


def _row(
    body: bytes, resource: ServedResource, view: View, printer: Printer, now: datetime
) -> Json:
    decoded: Json = msgspec.json.decode(body)
    if resource.conversion is not None and not resource.is_custom:
        # The columns are those of the stored version.
        decoded = resource.conversion.to_stored(decoded)
    try:
        cells = printer.row(decoded, now)
    except DECODE_ERRORS:
        # An object that cannot be printed must not hide the others, nor itself.
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
    # The bookmark at the end of the initial events is needed whatever the client includes.
    if view.include == "None" and _MARKED not in body:
        return None
    return msgspec.Raw(metadata_only(body, view.version))


PLAIN = View(Form.PLAIN)


_FORMS = {
    "": Form.PLAIN,
    "PartialObjectMetadata": Form.METADATA,
    "PartialObjectMetadataList": Form.METADATA,
    "Table": Form.TABLE,
}


class _OnlyMetadata(msgspec.Struct):
    """An object of which only the metadata is decoded, as raw JSON."""

    metadata: msgspec.Raw


def view_of(request: Request) -> View:
    """Return the form that the client accepts; raise a 406 if none is supported."""
    accept = request.header(b"accept")
    return PLAIN if accept in _WHOLE else _negotiated(accept)


def with_include_object(view: View, request: Request) -> View:
    """Return a table's view with its `includeObject` parameter; raise a 400 if that is invalid."""
    include = request.query.get("includeObject", "")
    if include not in _INCLUDED:
        detail = "must be 'Metadata', 'Object', 'None', or empty"
        wrong = causes.invalid("includeObject", include, detail)
        message = f"Unable to convert to Table as requested: {wrong.field}: {wrong.message}"
        raise status.bad_request(message)
    return View(view.form, view.version, include) if include else view


def check_accepts_json(request: Request) -> None:
    """Raise a 406 if a client does not accept plain JSON."""
    accept = request.header(b"accept")
    if accept in _WHOLE:
        return
    clauses = [_clause(each) for each in accept.split(",")]
    if not any(media in _JSON and not accepted.keys() & _TRANSFORMS for media, accepted in clauses):
        raise status.not_acceptable(("application/json",))


def prefers(request: Request, parameters: Mapping[str, str]) -> bool:
    """Return whether the client prefers JSON with these parameters over plain JSON."""
    for media, accepted in map(_clause, request.header(b"accept").split(",")):
        if media in _JSON and not accepted.keys() & parameters.keys():
            return False
        if media in _JSON and parameters.items() <= accepted.items():
            return True
    return False


# Clients send the same few headers.
@lru_cache(maxsize=256)
def _negotiated(accept: str) -> View:
    clauses = [_clause(each) for each in accept.split(",")]
    for media, parameters in clauses:
        form = _FORMS.get(parameters.get("as", ""))
        if media not in _JSON or form is None:
            continue
        if form is Form.PLAIN:
            return PLAIN
        version = parameters.get("v", "v1")
        if version in _META_VERSIONS and parameters.get("g", META_GROUP) == META_GROUP:
            return View(form, version)
    if any(media in _JSON for media, _ in clauses):
        raise status.not_acceptable(("application/json",))
    message = "406: Not Acceptable\n\nAvailable representations: application/json"
    raise ApiError(406, "NotAcceptable", message, details=status.NO_DETAILS)


def _clause(text: str) -> tuple[str, dict[str, str]]:
    media, *parameters = (part.strip() for part in text.split(";"))
    return media.lower(), dict(each.split("=", 1) for each in parameters if "=" in each)


def metadata_only(body: bytes, version: str = "v1") -> bytes:
    """Return an object's JSON with nothing but its metadata."""
    metadata = msgspec.json.decode(body, type=_OnlyMetadata).metadata
    return _PARTIAL % (version.encode(), bytes(metadata))


def list_prefix(resource: ServedResource, view: View) -> bytes:
    """Return the beginning of a list of this resource, up to its metadata."""
    if view.form is Form.METADATA:
        kind, version = "PartialObjectMetadataList", f"{META_GROUP}/{view.version}"
    else:
        kind, version = resource.list_kind, resource.api_version
    return f'{{"kind":"{kind}","apiVersion":"{version}","metadata":'.encode()
