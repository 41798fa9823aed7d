"""Validation that a schema is structural: every field has a type outside of junctors, and junctors only restrict.

The rules and messages are those of apiextensions v1. Rules about single keywords are in `keywords`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema.patterns import BadPattern, compile_pattern
from bramley.apiserver.schema.values import Schema
from bramley.base.errors import Cause

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_FORBIDDEN_IN_JUNCTORS = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}


def structural_causes(schema: Schema, path: str) -> list[Cause]:
    """Return why a schema is not structural, sorted by field and message."""
    errors = [*_node(schema, path, "root"), *_missing_fields(schema, schema, path, path)]
    return sorted(errors, key=lambda cause: f"{cause.field}: {cause.message}")


def _node(schema: Schema, path: str, level: str) -> Iterator[Cause]:
    yield from _children(schema, path, level)
    yield from _int_or_string(schema, path)
    yield from _junctors(schema, path)
    yield from _type(schema, path, level)
    yield from _resource(schema, path, level)


def _children(schema: Schema, path: str, level: str) -> Iterator[Cause]:
    items, extra = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, Mapping):
        yield from _node(items, f"{path}.items", "item")
    elif schema.get("type") == "array":
        yield causes.required(f"{path}.items", "must be specified")
    for name, inner in (schema.get("properties") or {}).items():
        yield from _node(inner, f"{path}.properties[{name}]", "field")
    if extra is not None and level == "root":
        yield causes.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(extra, Mapping):
        yield from _node(extra, f"{path}.additionalProperties", "field")


def _int_or_string(schema: Schema, path: str) -> Iterator[Cause]:
    if not schema.get("x-kubernetes-int-or-string"):
        return
    for keyword in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
        if schema.get(keyword):
            detail = "must be false if x-kubernetes-int-or-string is true"
            yield causes.invalid(f"{path}.{keyword}", value=True, detail=detail)


def _type(schema: Schema, path: str, level: str) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    field = f"{path}.type"
    if schema.get("x-kubernetes-embedded-resource") and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield causes.invalid(field, kind, detail) if kind else causes.required(field, detail)
    elif not kind and not (
        schema.get("x-kubernetes-int-or-string")
        or schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        yield causes.required(field, _EMPTY_TYPE[level])
    if level == "root" and kind not in {"", "object"}:
        yield causes.invalid(field, kind, "must be object at the root")


def _resource(schema: Schema, path: str, level: str) -> Iterator[Cause]:
    """Check the keywords of resources: the whole object and embedded ones."""
    properties = schema.get("properties") or {}
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if embedded and schema.get("additionalProperties") is not None:
        detail = "must not be used if x-kubernetes-embedded-resource is set"
        yield causes.forbidden(f"{path}.additionalProperties", detail)
    if embedded and not properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
        detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        yield causes.required(f"{path}.properties", detail)
    if embedded or level == "root":
        for name, required_type in (
            ("kind", "string"),
            ("apiVersion", "string"),
            ("metadata", "object"),
        ):
            if name in properties and properties[name].get("type") != required_type:
                field = f"{path}.properties[{name}].type"
                yield causes.invalid(
                    field, properties[name].get("type") or "", f"must be {required_type}"
                )
    if level == "root" and "metadata" in properties and not _only_names(properties["metadata"]):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield causes.forbidden(f"{path}.properties[metadata]", detail)


def _only_names(metadata: Schema) -> bool:
    return set(metadata) <= {"type", "properties", "default"} and set(
        metadata.get("properties") or {}
    ) <= {"name", "generateName"}


def _junctors(schema: Schema, path: str, *, skip: str = "") -> Iterator[Cause]:
    """Check anyOf, allOf, oneOf and not, and the pattern beside them."""
    skip_any = schema.get("anyOf") == _INT_OR_STRING or skip == "anyOf"
    for keyword in ("anyOf", "allOf", "oneOf"):
        for index, inner in enumerate(schema.get(keyword) or ()):
            if keyword == "anyOf" and skip_any:
                continue
            first = keyword == "allOf" and index == 0 and inner.get("anyOf") == _INT_OR_STRING
            yield from _nested(inner, f"{path}.{keyword}[{index}]", skip="anyOf" if first else "")
    if isinstance(schema.get("not"), Mapping):
        yield from _nested(schema["not"], f"{path}.not")
    yield from _pattern(schema, path)


def _pattern(schema: Schema, path: str) -> Iterator[Cause]:
    pattern = schema.get("pattern")
    if pattern:
        try:
            compile_pattern(pattern)
        except BadPattern as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            yield causes.invalid(f"{path}.pattern", pattern, detail)


def _nested(schema: Schema, path: str, *, skip: str = "") -> Iterator[Cause]:
    yield from _junctors(schema, path, skip=skip)
    if isinstance(schema.get("items"), Mapping):
        yield from _nested(schema["items"], f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        yield from _nested(inner, f"{path}.properties[{name}]")
    for keyword, detail in _FORBIDDEN_IN_JUNCTORS.items():
        if schema.get(keyword):
            yield causes.forbidden(f"{path}.{keyword}", detail)
    if "metadata" in (schema.get("properties") or {}):
        detail = "must not be specified in a nested context"
        yield causes.forbidden(f"{path}.properties[metadata]", detail)


def _missing_fields(nested: Any, schema: Any, path: str, where: str) -> Iterator[Cause]:
    """Find fields that only a junctor specifies: they would be pruned before the junctor is evaluated."""
    if not isinstance(nested, Mapping):
        return
    if not isinstance(schema, Mapping):
        yield causes.required(path, f"because it is defined in {where}")
        return
    yield from _missing_in_junctor(nested.get("not"), schema, path, f"{where}.not")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(nested.get(keyword) or ()):
            yield from _missing_in_junctor(inner, schema, path, f"{where}.{keyword}[{index}]")


def _missing_in_junctor(nested: Any, schema: Any, path: str, where: str) -> Iterator[Cause]:
    yield from _missing_fields(nested, schema, path, where)
    if not isinstance(nested, Mapping) or not isinstance(schema, Mapping):
        return
    items = nested.get("items")
    yield from _missing_in_junctor(items, schema.get("items"), f"{path}.items", f"{where}.items")
    fields = schema.get("properties") or {}
    for name, inner in (nested.get("properties") or {}).items():
        step = f"properties[{name}]"
        yield from _missing_in_junctor(inner, fields.get(name), f"{path}.{step}", f"{where}.{step}")
