"""Messages of the built-in kinds, read into the JSON that Go would print for the same struct.

What a struct always shows is there even if the bytes leave it out; what it leaves out when empty is not there. Unknown numbers
are passed over. Depth is bounded; the size is that of the body.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from bramley.apiserver.fields import structs
from bramley.apiserver.protobuf import well_known_types, wire

MAGIC = b"k8s\0"


class Envelope(NamedTuple):
    """What a body says that it is, and the message of that kind."""

    api_version: str
    kind: str
    message: memoryview


def open_envelope(data: bytes) -> Envelope:
    """Return what a body holds; raise Malformed."""
    if not data:
        raise wire.Malformed("empty data")
    if not data.startswith(MAGIC):
        shown = " ".join(str(byte) for byte in MAGIC)
        why = f"provided data does not appear to be a protobuf message, expected prefix [{shown}]"
        raise wire.Malformed(why)
    if len(data) == len(MAGIC):
        raise wire.Malformed("empty body")
    api_version = kind = ""
    message = memoryview(b"")
    for entry in wire.entries(memoryview(data)[len(MAGIC) :], "Unknown"):
        if entry.number == 1:
            api_version, kind = _identity(entry)
        elif entry.number == 2:
            message = entry.as_bytes("raw")
    return Envelope(api_version, kind, message)


def _identity(entry: wire.Entry) -> tuple[str, str]:
    found = {
        each.number: well_known_types.text(each.as_bytes("apiVersion"))
        for each in wire.entries(entry.as_bytes("typeMeta"), "TypeMeta")
        if each.number in {1, 2}
    }
    return found.get(1, ""), found.get(2, "")


Json = dict[str, Any]
# Reads one value of a type; the text names the field in refusals, the number is how deep it stands.
Reader = Callable[[wire.Entry, str, int], Any]

DEPTH_LIMIT = 100

_ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0}
_VARIANTS = MappingProxyType(
    {
        "props-or-array": {
            1: "apiextensions/v1.JSONSchemaProps",
            2: "[]apiextensions/v1.JSONSchemaProps",
        },
        "props-or-bool": {1: "bool", 2: "apiextensions/v1.JSONSchemaProps"},
        "props-or-strings": {1: "apiextensions/v1.JSONSchemaProps", 2: "[]string"},
    }
)


class _Part(NamedTuple):
    """How one field of a message is read and shown."""

    field: structs.Field
    read: Reader
    item: str


def read(data: memoryview, struct_name: str, depth: int = 0) -> Json:
    """Return a message as the JSON of its struct; raise Malformed."""
    if depth > DEPTH_LIMIT:
        raise wire.Malformed("exceeded max depth")
    struct = structs.struct(struct_name)
    parts = _parts(struct_name)
    found: Json = {}
    for entry in wire.entries(data, struct.go_name):
        part = parts.get(entry.number)
        if part is not None:
            _take(found, part, entry, depth)
    return _shown(found, struct)


@cache
def _parts(struct_name: str) -> dict[int, _Part]:
    return {
        each.number: _Part(each, reader(_item(each.plain)), _item(each.plain))
        for each in structs.struct(struct_name).own
        if each.number
    }


def _item(plain: str) -> str:
    """Return the type of one entry of a field: of a list's item, else of the whole."""
    return plain.removeprefix("[]")


def _take(found: Json, part: _Part, entry: wire.Entry, depth: int) -> None:
    field = part.field
    if field.is_inline:
        found.update(part.read(entry, field.name, depth))
    elif field.plain.startswith("[]"):
        found.setdefault(field.name, []).extend(_items(part, entry, depth))
    elif isinstance(value := part.read(entry, field.name, depth), dict):
        # Parts of one message or map may come in several entries.
        found.setdefault(field.name, {}).update(value)
    else:
        found[field.name] = value


def _items(part: _Part, entry: wire.Entry, depth: int) -> list[Any]:
    packed = entry.wire_type == wire.BYTES and part.item in {"bool", "int32", "int64"}
    if not packed:
        return [part.read(entry, part.field.name, depth)]
    data, at, found = entry.as_bytes(part.field.name), 0, []
    while at < len(data):
        value, at = wire.varint(data, at)
        found.append(part.read(wire.Entry(entry.number, wire.VARINT, value), "", depth))
    return found


def _shown(found: Json, struct: structs.Struct) -> Json:
    """Return what Go prints of a struct: required scalars always, the others unless they are empty."""
    shown: Json = {}
    for name, field in struct.named.items():
        value = found.get(name)
        if value is None:
            if field.number and not field.is_omitted_empty and field.type in _ZEROS:
                shown[name] = _ZEROS[field.type]
        elif value or not field.is_omitted_empty or field.type not in _ZEROS:
            shown[name] = value
    return shown


@cache
def reader(type_name: str) -> Reader:
    """Return what reads values of a type."""
    plain = type_name.removeprefix("*")
    if plain in _SCALARS:
        return _SCALARS[plain]
    if plain in well_known_types.LEAVES:
        leaf = well_known_types.LEAVES[plain]
        return lambda entry, name, _depth: leaf(entry.as_bytes(name))
    if plain in _VARIANTS:
        return _variant(_VARIANTS[plain])
    if plain.startswith("{}"):
        return _map(plain[2:])
    if plain.startswith("<[]"):
        return _boxed(plain[3:])
    return lambda entry, name, depth: read(entry.as_bytes(name), plain, depth + 1)


def _map(item: str) -> Reader:
    def read_pair(entry: wire.Entry, name: str, depth: int) -> Json:
        key, value = "", None
        for each in wire.entries(entry.as_bytes(name), name):
            if each.number == 1:
                key = well_known_types.text(each.as_bytes(name))
            elif each.number == 2:
                value = reader(item)(each, name, depth + 1)
        return {key: _empty(item) if value is None else value}

    return read_pair


def _empty(item: str) -> Any:
    if item.startswith("<"):
        return []
    return _ZEROS.get(item, "" if item == "bytes" else {})


def _boxed(item: str) -> Reader:
    def read_items(entry: wire.Entry, name: str, depth: int) -> list[Any]:
        return [
            reader(item)(each, name, depth)
            for each in wire.entries(entry.as_bytes(name), name)
            if each.number == 1
        ]

    return read_items


def _variant(types: dict[int, str]) -> Reader:
    """Return the reader of a value that is one of two things: the second if it is there, else the first."""

    def read_one(entry: wire.Entry, name: str, depth: int) -> Any:
        found: dict[int, Any] = {}
        for each in wire.entries(entry.as_bytes(name), name):
            kind = types.get(each.number, "")
            value = reader(_item(kind))(each, name, depth + 1) if kind else None
            if kind.startswith("[]"):
                found.setdefault(each.number, []).append(value)
            elif kind:
                found[each.number] = value
        return found.get(2, found.get(1))

    return read_one


_SCALARS: MappingProxyType[str, Reader] = MappingProxyType(
    {
        "string": lambda entry, name, _depth: well_known_types.text(entry.as_bytes(name)),
        "bytes": lambda entry, name, _depth: base64.b64encode(entry.as_bytes(name)).decode(),
        "bool": lambda entry, name, _depth: bool(entry.as_number(name)),
        "int32": lambda entry, name, _depth: wire.signed(entry.as_number(name), 32),
        "int64": lambda entry, name, _depth: wire.signed(entry.as_number(name), 64),
        "float64": lambda entry, name, _depth: _double(entry, name),
    }
)


def _double(entry: wire.Entry, name: str) -> float:
    if isinstance(entry.value, int) or entry.wire_type != wire.FIXED64:
        raise entry.mismatch(name)
    return well_known_types.double(entry.value)
