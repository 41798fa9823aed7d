"""What form a client wants: whole objects, or only their metadata. Tables and other encodings are passed over.

A client that lists several forms gets the first one that we have.
"""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from bramley.apiserver import status
from bramley.apiserver.resources import ServedResource
from bramley.apiserver.rest.exchange import Request
from bramley.apiserver.status import ApiError

_WHOLE = frozenset({"", "application/json", "*/*"})
_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%b}'
_PARTIAL_KINDS = frozenset({"PartialObjectMetadata", "PartialObjectMetadataList"})


class Form(Enum):
    """The forms in which objects can be shown."""

    PLAIN = auto()
    METADATA = auto()


class _OnlyMetadata(msgspec.Struct):
    """An object of which only the metadata is looked at, and that not closely."""

    metadata: msgspec.Raw


def form_of(request: Request) -> Form:
    """Return the form that the client wants; raise a 406 if we have none of those that it names."""
    accept = request.header(b"accept")
    if accept in _WHOLE:
        return Form.PLAIN
    clauses = [_clause(each) for each in accept.split(",")]
    for media, kind in clauses:
        if media not in {"application/json", "*/*"}:
            continue
        if not kind:
            return Form.PLAIN
        if kind in _PARTIAL_KINDS:
            return Form.METADATA
    if any(media in {"application/json", "*/*"} for media, _ in clauses):
        raise status.not_acceptable(("application/json",))
    message = "406: Not Acceptable\n\nAvailable representations: application/json"
    raise ApiError(406, "NotAcceptable", message, details=status.NOTHING)


def _clause(text: str) -> tuple[str, str]:
    media, *parameters = (part.strip() for part in text.split(";"))
    given = dict(each.split("=", 1) for each in parameters if "=" in each)
    return media.lower(), given.get("as", "")


def reformed(body: bytes) -> bytes:
    """Return an object's JSON with nothing but its metadata."""
    return _PARTIAL % bytes(msgspec.json.decode(body, type=_OnlyMetadata).metadata)


def list_prefix(resource: ServedResource, form: Form) -> bytes:
    """Return how a list of this resource begins, up to its metadata."""
    if form is Form.METADATA:
        kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
    else:
        kind, version = resource.list_kind, resource.api_version
    return f'{{"kind":"{kind}","apiVersion":"{version}","metadata":'.encode()
