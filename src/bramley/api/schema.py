"""From typed kinds to structural OpenAPI schemas: inlined, described, bounded, as CustomResourceDefinitions want them.

Types say everything: `Meta` carries ranges, patterns and descriptions, docstrings describe objects, `checks` hold the CEL rules
across fields. A type without a counterpart in a structural schema is refused when the schema is made, never skipped; so is a
grammar or a length that decoding would check, for those are the server's to hold writers to (see `text` and `items`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from bramley.api.meta import Object

Schema = dict[str, Any]

# The order in which keys are printed: what it is, what it may be, what is inside.
KEY_ORDER = (
    *("description", "type", "format", "nullable", "default", "enum", "pattern"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("required", "properties", "additionalProperties", "items", "x-kubernetes-validations"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """A CEL rule of a kind, the sentence for whoever breaks it, and the field to blame."""

    rule: str
    message: str
    field: str = ""

    def to_wire(self) -> Schema:
        """Return the rule as it stands in `x-kubernetes-validations`."""
        blame = {"fieldPath": self.field} if self.field else {}
        return {"rule": self.rule, "message": self.message, **blame}


def validations(*checks: Check) -> Schema:
    """Return what `Meta(extra_json_schema=…)` needs to put these rules on a single field."""
    return {"x-kubernetes-validations": [check.to_wire() for check in checks]}


def list_map(*keys: str) -> Schema:
    """Return what `Meta(extra_json_schema=…)` needs to make a list merge by these keys."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def text(*, pattern: str = "", at_least: int = 0, at_most: int = 0) -> msgspec.Meta:
    """Hold whoever writes a text to a pattern and a length, and let everybody read it."""
    wanted = {"pattern": pattern, "minLength": at_least, "maxLength": at_most}
    return msgspec.Meta(extra_json_schema={key: value for key, value in wanted.items() if value})


def items(*, at_most: int) -> msgspec.Meta:
    """Hold whoever writes a list to a length, and let everybody read it."""
    return msgspec.Meta(extra_json_schema={"maxItems": at_most})


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
    # Status is what somebody observed, so the server must not make any of it up.
    body = {name: property_of(part, defaults=name != "status") for name, part in parts.items()}
    return ordered(object_of(info, {**head, **body}))


def property_of(part: inspect.Field, *, defaults: bool = True) -> Schema:
    """Return the schema of one field with its default."""
    schema = of_type(part.type, defaults=defaults)
    if part.default is None:
        # The server drops a null that is not wanted before it validates; absent and null are one.
        schema.pop("nullable", None)
    return ordered({**schema, **default_of(part, schema)} if defaults else schema)


def default_of(part: inspect.Field, schema: Schema) -> Schema:
    """Return the default of a field, unless it only stands for "absent"."""
    if part.default is msgspec.NODEFAULT or part.default is None or part.default == "":
        return {}
    if isinstance(part.default, msgspec.Struct):
        # Spelled out, because a server checks CEL rules on a default before it fills it in further.
        inner = schema["properties"].items()
        return {"default": {name: one["default"] for name, one in inner if "default" in one}}
    return {"default": part.default}


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
    checks: tuple[Check, ...] = getattr(info.cls, "checks", ())
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
        raise TypeError(f"no structural schema says {info}")
    return {**of_type(members[0], defaults=defaults), "nullable": True}


NUMBER_BOUNDS = {"ge": "minimum", "le": "maximum"}


def bounds(info: inspect.IntType) -> Schema:
    """Return the range that a number sets, under its names in a schema."""
    found = {key: getattr(info, attribute) for attribute, key in NUMBER_BOUNDS.items()}
    return {key: value for key, value in found.items() if value is not None}


READER_BOUNDS = ("pattern", "min_length", "max_length")


def unbound(info: inspect.Type) -> Schema:
    """Add nothing, and refuse what would make an object unreadable that a server holds already."""
    if any(getattr(info, name, None) is not None for name in READER_BOUNDS):
        raise TypeError(f"a server may hold what {info} would not read")
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
        raise TypeError(f"no structural schema says {info}")
    return make(info)


def ordered(schema: Schema) -> Schema:
    """Return the schema with its keys in printing order; an unknown key is refused."""
    return {key: schema[key] for key in sorted(schema, key=KEY_ORDER.index)}
