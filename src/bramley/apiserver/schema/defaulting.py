"""Defaulting: missing fields get the schema's defaults, and nulls that nobody may write are dropped.

A null where the schema is not nullable counts as missing: it gets the default, or goes away when there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.apiserver.schema.values import ABSENT, copied

Defaulter = Callable[[Any], None]
Schema = Mapping[str, Any]


def compile_defaulter(schema: Schema) -> Defaulter:
    """Return a function that fills in defaults in place."""
    known = {name: _Field(inner) for name, inner in (schema.get("properties") or {}).items()}
    defaults = [(name, field) for name, field in known.items() if field.default is not ABSENT]
    extra = _field_or_none(schema.get("additionalProperties"))
    items = _field_or_none(schema.get("items"))

    def apply(value: Any) -> None:
        if type(value) is dict:
            _drop_nulls(value, known, extra)
            for name, field in defaults:
                if name not in value or (value[name] is None and not field.nullable):
                    value[name] = copied(field.default)
            for name, item in value.items():
                inner = known.get(name, extra)
                if inner is not None and (type(item) is dict or type(item) is list):
                    inner.apply(item)
        elif type(value) is list and items is not None:
            _default_items(value, items)

    return apply


class _Field:
    """What defaulting must know about a field: its default, whether it may be null, and what is below."""

    __slots__ = ("apply", "default", "nullable")

    def __init__(self, schema: Schema) -> None:
        default = schema.get("default")
        self.default = ABSENT if default is None else default
        self.nullable = bool(schema.get("nullable"))
        self.apply = compile_defaulter(schema)


def _field_or_none(schema: Any) -> _Field | None:
    return _Field(schema) if isinstance(schema, Mapping) else None


def _drop_nulls(value: dict[str, Any], known: Mapping[str, _Field], extra: _Field | None) -> None:
    for name in [name for name, item in value.items() if item is None]:
        field = known.get(name, extra)
        if field is None or field.nullable:
            continue
        if field.default is ABSENT:
            del value[name]
        else:
            value[name] = copied(field.default)


def _default_items(value: list[Any], items: _Field) -> None:
    for index, item in enumerate(value):
        if item is None and not items.nullable and items.default is not ABSENT:
            value[index] = copied(items.default)
        if value[index] is not None:
            items.apply(value[index])
