"""JSON values as Go prints and converts them, for the error messages of patches."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.fields import structs

_GO_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bool": (bool,),
    "int32": (int,),
    "int64": (int,),
    "float64": (int, float),
}
# Go has conversions between these, so the message is that they failed; for other types there is none.
_CONVERTIBLE = {("int64", "string"), ("float64", "int32"), ("float64", "int64")}


def conversion_error(value: Any, type_name: str) -> str | None:
    """Return why Go's converter rejects a value of this type, or None if it would accept it."""
    plain = type_name.removeprefix("*").removeprefix("<")
    if value is None:
        return None
    if plain in _GO_SCALARS:
        return None if type(value) in _GO_SCALARS[plain] else _scalar_error(value, plain)
    if plain.startswith("[]"):
        return _list_error(value, plain[2:])
    if plain.startswith("{}"):
        return _map_error(value, plain[2:])
    return _struct_error(value, plain) if structs.is_struct(plain) else None


def _scalar_error(value: Any, expected: str) -> str:
    actual = kind_of(value)
    if (actual, expected) in _CONVERTIBLE:
        return f"cannot convert {actual} to {expected}"
    return f"unrecognized type: {expected}"


def _list_error(value: Any, item: str) -> str | None:
    if not isinstance(value, list):
        return f"cannot restore slice from {kind_of(value)}"
    return next((error for each in value if (error := conversion_error(each, item))), None)


def _map_error(value: Any, item: str) -> str | None:
    if not isinstance(value, dict):
        return f"cannot restore map from {kind_of(value)}"
    return next((error for each in value.values() if (error := conversion_error(each, item))), None)


def _struct_error(value: Any, name: str) -> str | None:
    if not isinstance(value, dict):
        return f"cannot restore struct from: {kind_of(value)}"
    named = structs.struct(name).by_name
    below = (conversion_error(value[key], each.type) for key, each in named.items() if key in value)
    return next((error for error in below if error), None)


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


def as_text(value: Any) -> str:
    """Return a value in Go's `%v` format."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{as_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(as_text, value))}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number(value) if isinstance(value, float) else str(value)


def type_of(value: Any) -> str:
    """Return the Go type of a decoded JSON value."""
    return _TYPES.get(type(value), "%!s(<nil>)")


def kind_of(value: Any) -> str:
    """Return the `reflect.Kind` of a decoded JSON value."""
    return _KINDS.get(type(value), "invalid")


def _number(value: float) -> str:
    if value and not 1e-4 <= abs(value) < 1e21:
        return repr(value)
    return format(value, ".0f") if value == int(value) else repr(value)
