"""Schemas for field ownership, from the data of built-in kinds or from a CRD's schema.

Maps and structs are owned by field and lists by item, unless they are atomic; lists without a list type are atomic. Parts
without a schema are owned by field, with atomic lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from bramley.apiserver.fields import structs


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, number or boolean; an empty `type` allows any of them."""

    type: str = ""


@dataclass(frozen=True, slots=True)
class Atomic:
    """A list or map that has one owner as a whole; `inner` is its schema for validation."""

    inner: Callable[[], Schema]


@dataclass(frozen=True, slots=True)
class Map:
    """A struct or map: the declared fields, and the schema of all others, if they are allowed."""

    fields: Mapping[str, Callable[[], Schema]] = field(default_factory=dict)
    item: Callable[[], Schema] | None = None

    def below(self, key: str) -> Schema | None:
        """Return the schema of a key's value, or None if the key is not allowed."""
        schema = self.fields.get(key, self.item)
        return None if schema is None else schema()


@dataclass(frozen=True, slots=True)
class ListSchema:
    """A list whose items are identified by keys or, without keys, by value; `is_plain` if by position only."""

    item: Callable[[], Schema]
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class Deduced:
    """A part without a schema: maps are owned by field, lists as a whole."""


Schema = Scalar | Atomic | Map | ListSchema | Deduced

ANY = Deduced()
_TEXT = Scalar("string")
_SCALARS: dict[str, Scalar] = {
    "string": _TEXT,
    "bytes": _TEXT,
    "bool": Scalar("boolean"),
    "int32": Scalar("numeric"),
    "int64": Scalar("numeric"),
    "float64": Scalar("numeric"),
    "time": Scalar(),
    "microtime": Scalar(),
    "quantity": Scalar(),
    "intorstring": Scalar(),
    "duration": Scalar(),
}


@cache
def of_struct(name: str) -> Schema:
    """Return the schema of a built-in struct."""
    struct = structs.struct(name)
    fields = {key: _lazily(each) for key, each in struct.by_name.items()}
    whole = Map(fields)
    return Atomic(lambda: whole) if struct.is_atomic else whole


def _lazily(declared: structs.Field) -> Callable[[], Schema]:
    return lambda: _of_field(declared)


@cache
def _of_field(declared: structs.Field) -> Schema:
    plain = declared.plain.removeprefix("<")
    if plain.startswith("[]"):
        return _of_list(declared, plain[2:])
    inner = _of_type(plain)
    if declared.map_type == "atomic" and not isinstance(inner, Atomic):
        return Atomic(lambda: inner)
    return inner


def _of_list(declared: structs.Field, item: str) -> Schema:
    kind, keys = declared.list_type, declared.map_keys
    if not kind and declared.strategy == "merge":
        keys = (declared.merge_key,) if declared.merge_key else ()
        kind = "map" if keys else "set"
    if kind == "map":
        return ListSchema(lambda: _of_type(item), keys, _defaults(item, keys))
    listed = ListSchema(lambda: _of_type(item), is_plain=kind != "set")
    return listed if kind == "set" else Atomic(lambda: listed)


def _defaults(item: str, keys: tuple[str, ...]) -> dict[str, Any]:
    fields = structs.struct(item).by_name if structs.is_struct(item) else {}
    defaults = {key: fields[key].default for key in keys if key in fields and fields[key].default}
    return {key: msgspec.json.decode(text) for key, text in defaults.items()}


def _of_type(plain: str) -> Schema:
    if plain in _SCALARS:
        return _SCALARS[plain]
    if plain.startswith("{}"):
        return Map(item=lambda: _of_type(plain[2:]))
    if plain.startswith(("[]", "<[]")):
        listed = ListSchema(lambda: _of_type(plain.removeprefix("<")[2:]), is_plain=True)
        return Atomic(lambda: listed)
    return of_struct(plain) if structs.is_struct(plain) else ANY


def of_crd(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a custom resource."""
    schema_of_root = of_open_api(schema)
    properties = {
        "apiVersion": lambda: _TEXT,
        "kind": lambda: _TEXT,
        "metadata": lambda: of_struct("meta/v1.ObjectMeta"),
    }
    if not isinstance(schema_of_root, Map):
        return Map(properties, lambda: ANY)
    return Map({**schema_of_root.fields, **properties}, schema_of_root.item)


def of_open_api(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a part of a structural schema."""
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return Scalar()
    if kind == "array":
        return _of_array(schema)
    if kind == "object" or "properties" in schema:
        inner = _of_object(schema)
        return Atomic(lambda: inner) if schema.get("x-kubernetes-map-type") == "atomic" else inner
    scalars = {"string": "string", "boolean": "boolean", "integer": "numeric", "number": "numeric"}
    if kind in scalars:
        return Scalar("" if kind == "string" and schema.get("format") else scalars[kind])
    return ANY


def _of_object(schema: Mapping[str, Any]) -> Schema:
    fields: dict[str, Callable[[], Schema]] = {
        key: _cached(each) for key, each in (schema.get("properties") or {}).items()
    }
    if schema.get("x-kubernetes-embedded-resource"):
        fields["metadata"] = lambda: of_struct("meta/v1.ObjectMeta")
        fields["apiVersion"] = fields["kind"] = lambda: _TEXT
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        return Map(fields, _cached(additional))
    if additional is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        return Map(fields, lambda: ANY)
    return Map(fields)


def _cached(schema: Mapping[str, Any]) -> Callable[[], Schema]:
    return cache(lambda: of_open_api(schema))


def _of_array(schema: Mapping[str, Any]) -> Schema:
    items = schema.get("items") or {}
    item = _cached(items)
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        fields = items.get("properties") or {}
        defaults = {key: fields[key]["default"] for key in keys if "default" in fields.get(key, {})}
        return ListSchema(item, keys, defaults)
    listed = ListSchema(item, is_plain=kind != "set")
    return listed if kind == "set" else Atomic(lambda: listed)
