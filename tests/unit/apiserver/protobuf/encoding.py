"""A small writer of Kubernetes' protobuf form, the counterpart of what the server reads; knows only what tests need."""

from __future__ import annotations

import base64
import struct as packing
from datetime import datetime
from typing import Any

from bramley.apiserver.fields import structs

Json = dict[str, Any]


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    """Return an object's message in what goes around it."""
    identity = _bytes(1, api_version.encode()) + _bytes(2, kind.encode())
    return b"k8s\0" + _bytes(1, identity) + _bytes(2, message) + _bytes(3, b"") + _bytes(4, b"")


def whole(body: Json) -> bytes:
    """Return an object of a built-in kind as a body."""
    name = structs.of_kind(body["apiVersion"], body["kind"])
    assert name is not None
    return envelope(body["apiVersion"], body["kind"], message(body, name))


def message(value: Json, name: str) -> bytes:
    """Return a struct's JSON as its message."""
    written = b""
    for field in structs.struct(name).fields:
        if field.is_inline:
            written += _bytes(field.number, message(value, field.plain))
        elif field.name in value:
            written += entry(field.number, value[field.name], field.plain)
    return written


def entry(number: int, value: Any, kind: str) -> bytes:
    """Return one field, a list's or map's with an entry for each item."""
    if kind.startswith("[]"):
        return b"".join(entry(number, each, kind[2:]) for each in value)
    if kind.startswith("{}"):
        pairs = ((entry(1, key, "string"), entry(2, each, kind[2:])) for key, each in value.items())
        return b"".join(_bytes(number, key + each) for key, each in pairs)
    if kind in {"int32", "int64", "bool"}:
        return varint(number << 3) + varint(int(value) & (2**64 - 1))
    if kind == "float64":
        return varint(number << 3 | 1) + packing.pack("<d", value)
    return _bytes(number, _content(value, kind))


def _content(value: Any, kind: str) -> bytes:
    if kind == "string":
        return str(value).encode()
    if kind == "bytes":
        return base64.b64decode(value)
    if kind.startswith("<[]"):
        return b"".join(entry(1, each, kind[3:]) for each in value)
    if kind in {"time", "microtime"}:
        moment = datetime.fromisoformat(value)
        nanos = entry(2, moment.microsecond * 1000, "int32")
        return entry(1, int(moment.timestamp() // 1), "int64") + nanos
    if kind == "quantity":
        return entry(1, value, "string")
    if kind == "intorstring":
        is_text = isinstance(value, str)
        return entry(1, is_text, "int64") + (
            entry(3, value, "string") if is_text else entry(2, value, "int32")
        )
    return message(value, kind)


def _bytes(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    written = b""
    while value >= 0x80:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])
