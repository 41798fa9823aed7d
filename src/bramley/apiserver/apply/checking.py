"""Whether an applied configuration fits its kind's schema, in the words of the library that a real server uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bramley.apiserver.apply import sets, values
from bramley.apiserver.apply.schemas import Atomic, Deduced, Listed, Map, Scalar, Schema
from bramley.apiserver.strategic import go_text

_GO_TYPES: dict[type, str] = {dict: "map[string]interface {}", list: "[]interface {}"}


def complaint(config: Any, schema: Schema) -> str | None:
    """Return all that is wrong with a configuration, or None."""
    found = list(_wrong(config, schema, ""))
    if len(found) > 1:
        return "\n".join(["errors:", *(f"  {each}" for each in found)])
    return found[0] if found else None


def _wrong(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if value is None or isinstance(schema, Deduced):
        return
    if isinstance(schema, Atomic):
        yield from _wrong(value, schema.inner(), path)
    elif isinstance(schema, Scalar):
        if wrong := _wrong_scalar(value, schema.type):
            yield f"{path}: {wrong}"
    elif isinstance(schema, Map):
        yield from _wrong_map(value, schema, path)
    else:
        yield from _wrong_list(value, schema, path)


def _wrong_scalar(value: Any, wanted: str) -> str | None:
    if wanted == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_source(value)}}}"
    if wanted == "numeric" and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"expected numeric (int or float), got {go_text.type_of(value)}"
    if wanted == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{go_text.printed(value)}}}"
    if isinstance(value, dict | list):
        return f"expected any scalar, got &{{{go_text.printed(value)}}}"
    return None


def _source(value: Any) -> str:
    """Return a value as Go source writes it."""
    return f"{_GO_TYPES.get(type(value), '')}{go_text.printed(value)}"


def _wrong_map(value: Any, schema: Map, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{go_text.printed(value)}}}"
        return
    for key, each in value.items():
        below = schema.below(key)
        if below is None:
            yield f"{path}.{key}: field not declared in schema"
            # A real server stops at the first field that it does not know.
            return
        yield from _wrong(each, below, f"{path}.{key}")


def _wrong_list(value: Any, schema: Listed, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{go_text.printed(value)}}}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        shown = f"[{index}]"
        if not schema.is_plain:
            try:
                element = values.element_of(item, schema)
            except values.NoItem as wrong:
                yield f"{path}: element {index}: {wrong}"
                return
            shown = sets.shown_element(element)
            if element in seen:
                yield f"{path}: duplicate entries for key {shown}"
            seen.add(element)
        yield from _wrong(item, schema.item(), f"{path}{shown}")
