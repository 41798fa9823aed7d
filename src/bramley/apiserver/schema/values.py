"""JSON values as schemas see them: copies, strict equality, paths, and the mark for "there was none"."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec


class Absent(Enum):
    """The type of `ABSENT`; null is a value, so absence needs another mark."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

INT64: Final = range(-(2**63), 2**63)
NO_FIELD: Final = "<nil>"  # what Kubernetes writes where a breach belongs to no single field
META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def copied(value: Any) -> Any:
    """Return a copy that shares no list or mapping with the original."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal also in type: 1, 1.0 and true are three values."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if type(one) is list:
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def printable(value: Any) -> Any:
    """Return a value so that a message shows numbers as Go prints them: 1, 2.5, 1e+06."""
    if type(value) is float or (type(value) is int and value not in INT64):
        return msgspec.Raw(_go_float(float(value)).encode())
    return value


def _go_float(value: float) -> str:
    sign, digits, power = Decimal(repr(value)).normalize().as_tuple()
    exponent = len(digits) - 1 + int(power)
    if -4 <= exponent < 6 or not value:
        return f"{value:.17g}" if value.is_integer() else repr(value)
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    fraction = f".{rest}" if rest else ""
    return f"{'-' * sign}{first}{fraction}e{exponent:+03d}"


def child(path: str, name: str) -> str:
    """Return the path of a named field."""
    return f"{path}.{name}" if path else name


def key_of(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return what identifies an item of a list of type map, or None when it is no object."""
    if type(item) is not dict:
        return None
    return tuple(_hashable(item.get(key, ABSENT)) for key in keys)


def _hashable(value: Any) -> Any:
    # The type goes in too, because 1 and true are one key to Python.
    return (type(value), str(value) if type(value) in {dict, list} else value)
