"""Messages of the built-in kinds and their envelope, decoded to the JSON that Go prints for the same struct.

Required fields are present even if the bytes omit them; fields with `omitempty` are absent if they are empty. Unknown field
numbers are skipped. The depth is bounded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from bramley.apiserver.fields import structs
from bramley.apiserver.protobuf import well_known_types, wire

MAGIC = b"k8s\0"


class Envelope(NamedTuple):
    """The kind in a body's envelope, and the message of that kind."""

    api_version: str
    kind: str
    message: memoryview


def open_envelope(data: bytes) -> Envelope:
    """Return the envelope of a body; raise Malformed."""
    if not data:
        raise wire.Malformed("empty data")
    if not data.startswith(MAGIC):
        prefix = " ".join(str(byte) for byte in MAGIC)
        error = (
            f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]"
        )
        raise wire.Malformed(error)
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
    fields = {
        each.number: well_known_types.text(each.as_bytes("apiVersion"))
        for each in wire.entries(entry.as_bytes("typeMeta"), "TypeMeta")
        if each.number in {1, 2}
    }
    return fields.get(1, ""), fields.get(2, "")


Json = dict[str, Any]
# Decodes one value of a type; the string is the field name for error messages, the number is the depth.
Reader = Callable[[wire.Entry, str, int], Any]

DEPTH_LIMIT = 100

_ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0}
_VARIANTS = {
    "props-or-array": {
        1: "apiextensions/v1.JSONSchemaProps",
        2: "[]apiextensions/v1.JSONSchemaProps",
    },
    "props-or-bool": {1: "bool", 2: "apiextensions/v1.JSONSchemaProps"},
    "props-or-strings": {1: "apiextensions/v1.JSONSchemaProps", 2: "[]string"},
}


class _FieldDecoder(NamedTuple):
    """How one field of a message is decoded."""

    field: structs.Field
    read: Reader
    item: str


def read(data: memoryview, struct_name: str, depth: int = 0) -> Json:
    """Return the JSON of a message; raise Malformed."""
    if depth > DEPTH_LIMIT:
        raise wire.Malformed("exceeded max depth")
    struct = structs.struct(struct_name)
    decoders = _decoders(struct_name)
    values: Json = {}
    for entry in wire.entries(data, struct.go_name):
        decoder = decoders.get(entry.number)
        if decoder is not None:
            _decode_into(values, decoder, entry, depth)
    return _to_json(values, struct)


@cache
def _decoders(struct_name: str) -> dict[int, _FieldDecoder]:
    return {
        each.number: _FieldDecoder(each, reader(_item(each.plain)), _item(each.plain))
        for each in structs.struct(struct_name).fields
        if each.number
    }


def _item(plain: str) -> str:
    """Return the type of one entry of a field: the item type of a list, else the type itself."""
    return plain.removeprefix("[]")


def _decode_into(values: Json, decoder: _FieldDecoder, entry: wire.Entry, depth: int) -> None:
    field = decoder.field
    if field.is_inline:
        values.update(decoder.read(entry, field.name, depth))
    elif field.plain.startswith("[]"):
        values.setdefault(field.name, []).extend(_items(decoder, entry, depth))
    elif isinstance(value := decoder.read(entry, field.name, depth), dict):
        # The parts of one message or map may be in several entries.
        values.setdefault(field.name, {}).update(value)
    else:
        values[field.name] = value


def _items(decoder: _FieldDecoder, entry: wire.Entry, depth: int) -> list[Any]:
    packed = entry.wire_type == wire.BYTES and decoder.item in {"bool", "int32", "int64"}
    if not packed:
        return [decoder.read(entry, decoder.field.name, depth)]
    data, position, items = entry.as_bytes(decoder.field.name), 0, []
    while position < len(data):
        value, position = wire.varint(data, position)
        items.append(decoder.read(wire.Entry(entry.number, wire.VARINT, value), "", depth))
    return items


def _to_json(values: Json, struct: structs.Struct) -> Json:
    """Return the JSON that Go prints for a struct: required scalars always, others unless they are empty."""
    fields: Json = {}
    for name, field in struct.by_name.items():
        value = values.get(name)
        if value is None:
            if field.number and not field.is_omitted_empty and field.type in _ZEROS:
                fields[name] = _ZEROS[field.type]
        elif value or not field.is_omitted_empty or field.type not in _ZEROS:
            fields[name] = value
    return fields


@cache
def reader(type_name: str) -> Reader:
    """Return the reader for values of a type."""
    plain = type_name.removeprefix("*")
    if plain in _SCALARS:
        return _SCALARS[plain]
    if plain in well_known_types.WELL_KNOWN_TYPES:
        decode = well_known_types.WELL_KNOWN_TYPES[plain]
        return lambda entry, name, _depth: decode(entry.as_bytes(name))
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
    """Return the reader for a value with two forms: the second if present, else the first."""

    def read_one(entry: wire.Entry, name: str, depth: int) -> Any:
        forms: dict[int, Any] = {}
        for each in wire.entries(entry.as_bytes(name), name):
            kind = types.get(each.number, "")
            value = reader(_item(kind))(each, name, depth + 1) if kind else None
            if kind.startswith("[]"):
                forms.setdefault(each.number, []).append(value)
            elif kind:
                forms[each.number] = value
        return forms.get(2, forms.get(1))

    return read_one


_SCALARS: dict[str, Reader] = {
    "string": lambda entry, name, _depth: well_known_types.text(entry.as_bytes(name)),
    "bytes": lambda entry, name, _depth: base64.b64encode(entry.as_bytes(name)).decode(),
    "bool": lambda entry, name, _depth: bool(entry.as_number(name)),
    "int32": lambda entry, name, _depth: wire.signed(entry.as_number(name), 32),
    "int64": lambda entry, name, _depth: wire.signed(entry.as_number(name), 64),
    "float64": lambda entry, name, _depth: _double(entry, name),
}


def _double(entry: wire.Entry, name: str) -> float:
    if isinstance(entry.value, int) or entry.wire_type != wire.FIXED64:
        raise entry.mismatch(name)
    return well_known_types.double(entry.value)
