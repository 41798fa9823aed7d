"""Why a patched object does not fit its kind, in the words of the converter that a real server uses for strategic patches."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.fields import structs
from bramley.apiserver.strategic import go_text

_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bool": (bool,),
    "int32": (int,),
    "int64": (int,),
    "float64": (int, float),
}
# Go converts these into each other, so it says that it cannot; for others it says that it does not know the type.
_CONVERTIBLE = {("int64", "string"), ("float64", "int32"), ("float64", "int64")}


def complaint(value: Any, type_name: str) -> str | None:
    """Return what does not fit, or None when only a value's own form is wrong."""
    plain = type_name.removeprefix("*").removeprefix("<")
    if value is None:
        return None
    if plain in _SCALARS:
        return None if type(value) in _SCALARS[plain] else _scalar(value, plain)
    if plain.startswith("[]"):
        return _list(value, plain[2:])
    if plain.startswith("{}"):
        return _map(value, plain[2:])
    return _struct(value, plain) if structs.is_struct(plain) else None


def _scalar(value: Any, wanted: str) -> str:
    found = go_text.kind_of(value)
    if (found, wanted) in _CONVERTIBLE:
        return f"cannot convert {found} to {wanted}"
    return f"unrecognized type: {wanted}"


def _list(value: Any, item: str) -> str | None:
    if not isinstance(value, list):
        return f"cannot restore slice from {go_text.kind_of(value)}"
    return next((found for each in value if (found := complaint(each, item))), None)


def _map(value: Any, item: str) -> str | None:
    if not isinstance(value, dict):
        return f"cannot restore map from {go_text.kind_of(value)}"
    return next((found for each in value.values() if (found := complaint(each, item))), None)


def _struct(value: Any, name: str) -> str | None:
    if not isinstance(value, dict):
        return f"cannot restore struct from: {go_text.kind_of(value)}"
    named = structs.struct(name).named
    below = (complaint(value[key], each.type) for key, each in named.items() if key in value)
    return next((found for found in below if found), None)
