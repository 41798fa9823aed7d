"""How the parts of a kind are owned: as one, by field, by key, or by value. Made from the data of built-in kinds or a CRD's schema.

A list without a type, and a map or struct that says so, is owned as one. What no schema describes is owned field by field, its
lists as one.
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
    """A text, number or boolean; `type` is what it must be, empty for any of them."""

    type: str = ""


@dataclass(frozen=True, slots=True)
class Atomic:
    """A list or map that belongs to one owner; `inner` describes it for the check of an applied configuration."""

    inner: Callable[[], Schema]


@dataclass(frozen=True, slots=True)
class Map:
    """Fields with names: those that are declared, and those of `item`, if any may be there."""

    fields: Mapping[str, Callable[[], Schema]] = field(default_factory=dict)
    item: Callable[[], Schema] | None = None

    def below(self, key: str) -> Schema | None:
        """Return the schema of a key's value, or None if there may be none."""
        found = self.fields.get(key, self.item)
        return None if found is None else found()


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of items that are known by keys, or, without keys, by their values; `is_plain` when they are only counted."""

    item: Callable[[], Schema]
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class Deduced:
    """Whatever is there: maps by their fields, lists as one."""


Schema = Scalar | Atomic | Map | Listed | Deduced

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
    fields = {key: _lazily(each) for key, each in struct.named.items()}
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
        return Listed(lambda: _of_type(item), keys, _defaults(item, keys))
    listed = Listed(lambda: _of_type(item), is_plain=kind != "set")
    return listed if kind == "set" else Atomic(lambda: listed)


def _defaults(item: str, keys: tuple[str, ...]) -> dict[str, Any]:
    named = structs.struct(item).named if structs.is_struct(item) else {}
    given = {key: named[key].default for key in keys if key in named and named[key].default}
    return {key: msgspec.json.decode(text) for key, text in given.items()}


def _of_type(plain: str) -> Schema:
    if plain in _SCALARS:
        return _SCALARS[plain]
    if plain.startswith("{}"):
        return Map(item=lambda: _of_type(plain[2:]))
    if plain.startswith(("[]", "<[]")):
        listed = Listed(lambda: _of_type(plain.removeprefix("<")[2:]), is_plain=True)
        return Atomic(lambda: listed)
    return of_struct(plain) if structs.is_struct(plain) else ANY


def of_crd(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a custom kind's whole objects."""
    found = of_open_api(schema)
    known = {
        "apiVersion": lambda: _TEXT,
        "kind": lambda: _TEXT,
        "metadata": lambda: of_struct("meta/v1.ObjectMeta"),
    }
    if not isinstance(found, Map):
        return Map(known, lambda: ANY)
    return Map({**found.fields, **known}, found.item)


def of_open_api(schema: Mapping[str, Any]) -> Schema:
    """Return the schema that a part of a structural schema stands for."""
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
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping):
        return Map(fields, _cached(more))
    if more is True or schema.get("x-kubernetes-preserve-unknown-fields"):
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
        given = items.get("properties") or {}
        defaults = {key: given[key]["default"] for key in keys if "default" in given.get(key, {})}
        return Listed(item, keys, defaults)
    listed = Listed(item, is_plain=kind != "set")
    return listed if kind == "set" else Atomic(lambda: listed)
