"""Generates the structural OpenAPI schemas of CustomResourceDefinitions from typed kinds.

`Meta` has ranges, patterns and descriptions, docstrings describe objects, and `checks` are the CEL rules across fields. A type
that a structural schema cannot express raises TypeError; so does a pattern or a length that decoding would check, because only
the server validates those, on writes (see `text` and `items`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from bramley.api.meta import Object

Schema = dict[str, Any]

# The order in which keys are printed.
KEY_ORDER = (
    *("description", "type", "format", "nullable", "default", "enum", "pattern"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("required", "properties", "additionalProperties", "items", "x-kubernetes-validations"),
)


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """A CEL validation rule, its error message, and the field that the error refers to."""

    rule: str
    message: str
    field: str = ""

    def to_wire(self) -> Schema:
        """Return the rule as an item of `x-kubernetes-validations`."""
        field_path = {"fieldPath": self.field} if self.field else {}
        return {"rule": self.rule, "message": self.message, **field_path}


def validations(*checks: ValidationRule) -> Schema:
    """Return the `extra_json_schema` that adds these rules to a field."""
    return {"x-kubernetes-validations": [check.to_wire() for check in checks]}


def list_map(*keys: str) -> Schema:
    """Return the `extra_json_schema` of a list that is merged by these keys."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def text(*, pattern: str = "", min_length: int = 0, max_length: int = 0) -> msgspec.Meta:
    """Constrain a string by pattern and length in the schema only: the server validates writes, decoding accepts any value."""
    bounds = {"pattern": pattern, "minLength": min_length, "maxLength": max_length}
    return msgspec.Meta(extra_json_schema={key: value for key, value in bounds.items() if value})


def items(*, max_items: int) -> msgspec.Meta:
    """Constrain the length of a list in the schema only, as `text` does."""
    return msgspec.Meta(extra_json_schema={"maxItems": max_items})


def of_kind(kind: type[Object]) -> Schema:
    """Return the schema of a whole object: its type fields, metadata, spec and status."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - narrows for mypy; an Object always is
    parts = {field.encode_name: field for field in info.fields if field.name != "metadata"}
    head: Schema = {
        "apiVersion": {"description": "The version of this schema.", "type": "string"},
        "kind": {"description": "The kind of the object.", "type": "string"},
        "metadata": {"type": "object"},
    }
    # A status is only what a controller observed, so the server must not add defaults to it.
    body = {name: property_of(part, defaults=name != "status") for name, part in parts.items()}
    return ordered(object_of(info, {**head, **body}))


def property_of(field: inspect.Field, *, defaults: bool = True) -> Schema:
    """Return the schema of one field with its default."""
    schema = of_type(field.type, defaults=defaults)
    if field.default is None:
        # The server removes a null of a field that is not nullable before validation, so null and absent are the same.
        schema.pop("nullable", None)
    return ordered({**schema, **default_of(field, schema)} if defaults else schema)


def default_of(field: inspect.Field, schema: Schema) -> Schema:
    """Return the default of a field, unless it means that the field is absent."""
    if field.default is msgspec.NODEFAULT or field.default is None or field.default == "":
        return {}
    if isinstance(field.default, msgspec.Struct):
        # Written out, because a server evaluates CEL rules on a default before it adds nested defaults.
        inner = schema["properties"].items()
        return {"default": {name: each["default"] for name, each in inner if "default" in each}}
    return {"default": field.default}


def of_type(info: inspect.Type, *, defaults: bool = True) -> Schema:
    """Return the schema of a type."""
    if isinstance(info, inspect.Metadata):
        return {**of_type(info.type, defaults=defaults), **(info.extra_json_schema or {})}
    if isinstance(info, inspect.StructType):
        parts = {field.encode_name: property_of(field, defaults=defaults) for field in info.fields}
        return object_of(info, parts)
    if isinstance(info, inspect.ListType):
        inner = ordered(of_type(info.item_type, defaults=defaults))
        return {"type": "array", "items": inner, **unbound(info)}
    if isinstance(info, inspect.DictType):
        values = ordered(of_type(info.value_type, defaults=defaults))
        return {"type": "object", "additionalProperties": values}
    if isinstance(info, inspect.UnionType):
        return optional_of(info, defaults=defaults)
    return scalar_of(info)


def object_of(info: inspect.StructType, properties: Schema) -> Schema:
    """Return the schema of an object with these properties, described by its docstring."""
    required = [part.encode_name for part in info.fields if part.required]
    checks: tuple[ValidationRule, ...] = getattr(info.cls, "checks", ())
    return {
        "description": " ".join((info.cls.__doc__ or "").split()),
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **(validations(*checks) if checks else {}),
    }


def optional_of(info: inspect.UnionType, *, defaults: bool) -> Schema:
    """Return the schema of `X | None`; no other union is structural."""
    members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
    if len(members) != 1 or not info.includes_none:
        raise TypeError(f"{info} cannot be expressed by a structural schema")
    return {**of_type(members[0], defaults=defaults), "nullable": True}


NUMBER_BOUNDS = {"ge": "minimum", "le": "maximum"}


def bounds(info: inspect.IntType) -> Schema:
    """Return the range of a number as keys of a schema."""
    keywords = {key: getattr(info, attribute) for attribute, key in NUMBER_BOUNDS.items()}
    return {key: value for key, value in keywords.items() if value is not None}


READER_BOUNDS = ("pattern", "min_length", "max_length")


def unbound(info: inspect.Type) -> Schema:
    """Return no keys; TypeError if decoding would reject objects that a server has already stored."""
    if any(getattr(info, name, None) is not None for name in READER_BOUNDS):
        raise TypeError(f"decoding {info} would reject stored objects: use text() or items()")
    return {}


SCALARS: Mapping[type[inspect.Type], Callable[[Any], Schema]] = {
    inspect.StrType: lambda info: {"type": "string", **unbound(info)},
    inspect.IntType: lambda info: {"type": "integer", **bounds(info)},
    inspect.BoolType: lambda _: {"type": "boolean"},
    inspect.DateTimeType: lambda _: {"type": "string", "format": "date-time"},
    inspect.LiteralType: lambda info: {"type": "string", "enum": list(info.values)},
}


def scalar_of(info: inspect.Type) -> Schema:
    """Return the schema of a single value."""
    make = SCALARS.get(type(info))
    if make is None:
        raise TypeError(f"{info} cannot be expressed by a structural schema")
    return make(info)


def ordered(schema: Schema) -> Schema:
    """Return the schema with its keys in printing order; ValueError for an unknown key."""
    return {key: schema[key] for key in sorted(schema, key=KEY_ORDER.index)}
