"""A second implementation of structural schemas: what a real API server accepts, independent of the project's own code."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Return whether the value fits the schema; unknown fields do, because a server prunes them."""
    if value is None:
        return bool(schema.get("nullable", False))
    checks: dict[str, Callable[[dict[str, Any], Any], bool]] = {
        "object": accepts_object,
        "array": accepts_array,
        "string": accepts_text,
        "integer": accepts_integer,
        "boolean": lambda _, given: isinstance(given, bool),
    }
    return checks[schema["type"]](schema, value) and value in schema.get("enum", [value])


def accepts_object(schema: dict[str, Any], value: Any) -> bool:
    if not isinstance(value, dict) or any(name not in value for name in schema.get("required", [])):
        return False
    known = schema.get("properties", {})
    return all(accepts(known[name], one) for name, one in value.items() if name in known)


def accepts_array(schema: dict[str, Any], value: Any) -> bool:
    if not isinstance(value, list) or len(value) > schema.get("maxItems", len(value)):
        return False
    return all(accepts(schema["items"], one) for one in value)


def accepts_text(schema: dict[str, Any], value: Any) -> bool:
    if not isinstance(value, str):
        return False
    # Go's `$` is the very end of the text.
    pattern = schema.get("pattern", "").replace("$", r"\Z")
    long_enough = len(value) >= schema.get("minLength", 0)
    short_enough = len(value) <= schema.get("maxLength", len(value))
    fits = "format" not in schema or is_date_time(value)
    return long_enough and short_enough and fits and re.search(pattern, value) is not None


def accepts_integer(schema: dict[str, Any], value: Any) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def is_date_time(text: str) -> bool:
    if not DATE_TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def completed(schema: dict[str, Any], value: Any) -> Any:
    """Return the value with the schema's defaults filled in, as a server stores it."""
    if schema["type"] == "array" and isinstance(value, list):
        return [completed(schema["items"], one) for one in value]
    if schema["type"] != "object" or not isinstance(value, dict):
        return value
    filled = dict(value)
    for name, one in schema.get("properties", {}).items():
        if name not in filled and "default" in one:
            filled[name] = one["default"]
        if name in filled:
            filled[name] = completed(one, filled[name])
    return filled
