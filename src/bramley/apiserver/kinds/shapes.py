"""The shapes of built-in kinds: their fields and types, from `shapes.json`.

A checker walks one object: a value of a wrong type raises the error of Go's decoder; unknown fields are dropped and reported;
empty maps, lists, strings, numbers and booleans of fields with `omitempty` are dropped, as kube-apiserver does.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from bramley.api import quantities

# Checks a value at a path, adds the paths of unknown fields to the list, and returns the value to store.
Checker = Callable[[Any, str, list[str]], Any]

_SECONDS = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)
_ZONE = ("Z07:00", r"(Z|[+-]\d\d:\d\d)")
_INDEX = re.compile(r"\[\d+\]")
_RANGES = {"int32": 2**31, "int64": 2**63}
_JSON_NAMES: dict[type, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "bool",
    dict: "object",
    list: "array",
}
# The replacement of a null in a list or a map.
_ZERO_VALUES: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "[]uint8": "",
    "resource.Quantity": "0",
}
_SCALARS: dict[str, type] = {"string?": str, "bool?": bool, "int32?": int, "int64?": int}


class WrongShape(ValueError):
    """A value does not fit its field; the text is that of Go's decoder."""


class _Mismatch(Exception):
    """A value of a wrong type, before the field that holds it is known."""

    def __init__(self, value: Any, expected: str) -> None:
        super().__init__()
        self.value = value
        self.expected = expected

    def named(self, struct: str, path: str) -> WrongShape:
        """Return the error that names the struct and the field."""
        json_type = _JSON_NAMES.get(type(self.value), "value")
        if json_type == "number" and self.expected.startswith("int"):
            json_type = f"number {msgspec.json.encode(self.value).decode()}"
        plain = _INDEX.sub("", path)
        return WrongShape(
            f"json: cannot unmarshal {json_type} into Go struct field {struct}.{plain} of type {self.expected}"
        )


@cache
def _shapes() -> dict[str, dict[str, str]]:
    data = resources.files(__package__).joinpath("shapes.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[str, str]])


@cache
def checker(type_name: str) -> Checker:
    """Return the checker of a type, built at first use."""
    if type_name in _LEAVES:
        return _LEAVES[type_name]
    if type_name.startswith("[]"):
        return _list(type_name)
    if type_name.startswith("map[string]"):
        return _map(type_name)
    return _Struct(type_name)


class _Struct:
    """Checks a value against the fields of one struct."""

    def __init__(self, type_name: str) -> None:
        shape = _shapes()[type_name]
        self._name = ".".join(type_name.split(".")[-2:])
        self._types = {name: each.rstrip("!?") for name, each in shape.items()}
        self._droppable = _droppable(shape)
        # Built at first use, because types may refer to themselves.
        self._checkers: dict[str, Checker] = {}

    def __call__(self, value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _Mismatch(value, self._name)
        dropped = []
        for name, each in value.items():
            expected = self._types.get(name)
            if expected is None:
                unknown.append(_below(path, name))
                dropped.append(name)
            elif each is None or (not each and type(each) is self._droppable.get(name)):
                dropped.append(name)
            elif expected != "string" or type(each) is not str:
                value[name] = self._field(name, each, _below(path, name), unknown)
        for name in dropped:
            del value[name]
        return value

    def _field(self, name: str, value: Any, path: str, unknown: list[str]) -> Any:
        check = self._checkers.get(name)
        if check is None:
            check = self._checkers[name] = checker(self._types[name])
        try:
            return check(value, path, unknown)
        except _Mismatch as mismatch:
            raise mismatch.named(self._name.partition(".")[2], path) from None


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _droppable(shape: dict[str, str]) -> dict[str, type]:
    """Return the fields of a struct that are dropped when empty, each with the type of its empty value."""
    empty_types = ((name, _empty_type(each)) for name, each in shape.items())
    return {name: each for name, each in empty_types if each is not None}


def _empty_type(marked: str) -> type | None:
    if marked.endswith("!"):
        return None
    if marked.startswith("map["):
        return dict
    if marked.startswith("[]"):
        return str if marked == "[]uint8" else list
    return _SCALARS.get(marked)


def _list(type_name: str) -> Checker:
    item = type_name[2:]
    check_item = checker(item) if item in _LEAVES else None

    def check(value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise _Mismatch(value, type_name)
        check_each = check_item or checker(item)
        for index, each in enumerate(value):
            if each is None:
                value[index] = _ZERO_VALUES.get(item, {})
            else:
                value[index] = check_each(each, f"{path}[{index}]", unknown)
        return value

    return check


def _map(type_name: str) -> Checker:
    item = type_name.removeprefix("map[string]")

    def check(value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _Mismatch(value, type_name)
        check_each = checker(item)
        for key, each in value.items():
            if each is None:
                value[key] = _ZERO_VALUES.get(item, {})
            else:
                value[key] = check_each(each, f"{path}.{key}", unknown)
        return value

    return check


def _scalar(type_name: str, *allowed: type) -> Checker:
    def check(value: Any, _path: str, _unknown: list[str]) -> Any:
        if type(value) not in allowed:
            raise _Mismatch(value, type_name)
        return value

    return check


def _integer(type_name: str) -> Checker:
    limit = _RANGES[type_name]

    def check(value: Any, _path: str, _unknown: list[str]) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise _Mismatch(value, type_name)
        return value

    return check


def _time(layout: str, *elements: tuple[str, str]) -> Checker:
    """Return a checker of times; the elements are parts of Go's layout with the patterns that they accept."""
    whole = re.compile("".join(pattern for _, pattern in elements))

    def check(value: Any, _path: str, _unknown: list[str]) -> Any:
        if type(value) is not str:
            raise _Mismatch(value, "string")
        if not whole.fullmatch(value):
            raise WrongShape(f'parsing time "{value}" as "{layout}": {_unparsed(value, elements)}')
        return value

    return check


def _unparsed(text: str, elements: tuple[tuple[str, str], ...]) -> str:
    remaining = text
    for shown, pattern in elements:
        match = re.match(pattern, remaining)
        if match is None:
            return f'cannot parse "{remaining}" as "{shown}"'
        remaining = remaining[match.end() :]
    return f'extra text: "{remaining}"'


def _quantity(value: Any, _path: str, _unknown: list[str]) -> Any:
    text = msgspec.json.encode(value).decode() if type(value) in {int, float} else value
    try:
        if type(text) is str:
            return quantities.canonical(text)
    except quantities.InvalidQuantity:
        pass
    pattern = f"^{quantities.PATTERN.pattern}$"
    raise WrongShape(f"quantities must match the regular expression '{pattern}'")


def _bytes(value: Any, _path: str, _unknown: list[str]) -> Any:
    if type(value) is not str:
        raise _Mismatch(value, "[]uint8")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise WrongShape(f"illegal base64 data at input byte {_first_illegal(value)}") from None
    return value


def _first_illegal(text: str) -> int:
    legal = re.match(r"[A-Za-z0-9+/]*={0,2}", text)
    end = legal.end() if legal else 0
    # Four characters encode three bytes: a truncated text is wrong from the end of its last whole group of four.
    return end if end < len(text) else end - end % 4


_LEAVES: dict[str, Checker] = {
    "any": lambda value, _path, _unknown: value,
    "string": _scalar("string", str),
    "bool": _scalar("bool", bool),
    "int32": _integer("int32"),
    "int64": _integer("int64"),
    "float64": _scalar("float64", int, float),
    "[]uint8": _bytes,
    "v1.Time": _time("2006-01-02T15:04:05Z07:00", *_SECONDS, ("", r"([.,]\d+)?"), _ZONE),
    "v1.MicroTime": _time(
        "2006-01-02T15:04:05.000000Z07:00", *_SECONDS, (".000000", r"\.\d{6}"), _ZONE
    ),
    "resource.Quantity": _quantity,
    "intstr.IntOrString": lambda value, path, unknown: (
        value if type(value) is str else _LEAVES["int32"](value, path, unknown)
    ),
}
