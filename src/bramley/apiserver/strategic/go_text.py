"""JSON values as Go prints them, because refusals of a patch show parts of it so."""

from __future__ import annotations

from typing import Any

_TYPES: dict[type, str] = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    int: "int64",
    float: "float64",
    bool: "bool",
}
_KINDS: dict[type, str] = {
    dict: "map",
    list: "slice",
    str: "string",
    int: "int64",
    float: "float64",
    bool: "bool",
}
MAP, LIST = _TYPES[dict], _TYPES[list]


def printed(value: Any) -> str:
    """Return a value as `%v` prints it: maps by key, nothing quoted."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{printed(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(printed, value))}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number(value) if isinstance(value, float) else str(value)


def type_of(value: Any) -> str:
    """Return the type that Go's decoder gives to a JSON value."""
    return _TYPES.get(type(value), "%!s(<nil>)")


def kind_of(value: Any) -> str:
    """Return the kind that Go's reflection names for a JSON value."""
    return _KINDS.get(type(value), "invalid")


def _number(value: float) -> str:
    if value and not 1e-4 <= abs(value) < 1e21:
        return repr(value)
    return format(value, ".0f") if value == int(value) else repr(value)
