"""The JSON paths of custom columns: fields, indexes, slices, wildcards, descents and filters, compiled into functions.

A step maps the values found so far to those that it finds in them. A step that does not fit a value (an index into a text, a
filter over an object) ends the search with nothing, which is shown as an empty cell.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_FIELD = re.compile(r"((?:\\.|[^\\ \t\r\n.,\[\]$@{}])+)")
_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?\d+)?(:(?:-?\d+)?)?(:(?:-?\d+)?)?")
_FILTER = re.compile(r"""\[\?\(((?:[^'")]|"(?:\\.|[^"])*"|'(?:\\.|[^'])*')*)\)\]""")
_COMPARED = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class BadPath(ValueError):
    """A text that is not a valid path."""


class _Unfit(Exception):
    """A value to which a step cannot be applied."""


def compile(path: str) -> Callable[[Any], list[Any]]:
    """Return the function that finds what a path names; raise BadPath."""
    steps = list(_steps(path.strip()))

    def find(value: Any) -> list[Any]:
        try:
            return _walk(steps, [value])
        except _Unfit:
            return []

    return find


def _walk(steps: Iterable[Step], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
    return values


def _steps(path: str) -> Iterable[Step]:
    position = 0
    while position < len(path):
        rest = path[position:]
        if rest[0] in " @$":
            length = 1
        elif rest.startswith("[?("):
            length, step = _filter(rest)
            yield step
        elif rest.startswith(".."):
            yield _descend
            # A name may follow directly, as if it had its own dot.
            length = 1 if _FIELD.match(rest, 2) else 2
        elif rest[0] == ".":
            length, step = _field(rest)
            yield step
        elif rest[0] == "[":
            length, step = _bracket(rest)
            yield step
        else:
            raise BadPath(path)
        position += length


def _field(text: str) -> tuple[int, Step]:
    match = _FIELD.match(text, 1)
    if match is None:
        # A dot alone is the whole object.
        return 1, list
    if match[1] == "*":
        return match.end(), _wildcard
    name = match[1].replace("\\", "")

    def step(values: list[Any]) -> list[Any]:
        return [each[name] for each in values if isinstance(each, dict) and name in each]

    return match.end(), step


def _bracket(text: str) -> tuple[int, Step]:
    end = text.find("]")
    if end < 0:
        raise BadPath(text)
    inside = text[1:end]
    parts = [each.strip() for each in inside.split(",")]
    if len(parts) == 1:
        return end + 1, _selection(inside)
    choices = [_selection(each) for each in parts]
    return end + 1, lambda values: [value for choice in choices for value in choice(values)]


def _selection(text: str) -> Step:
    key = _KEY.fullmatch(text)
    if key is not None:
        inner = list(_steps(f".{key[1]}"))
        return lambda values: _walk(inner, values)
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None or not text:
        raise BadPath(text)
    return _slice(match)


def _slice(match: re.Match[str]) -> Step:
    first, last, every = ((part or "").removeprefix(":") for part in match.groups())
    start = int(first or 0)
    if match[2] is None:
        # An index is a slice of length one; -1 has no number after it, so its slice ends with the list.
        return _in_lists(lambda items: _cut(items, start, start + 1 or len(items), 1))
    return _in_lists(
        lambda items: _cut(items, start, int(last) if last else len(items), int(every or 1))
    )


def _in_lists(pick: Callable[[list[Any]], list[Any]]) -> Step:
    def step(values: list[Any]) -> list[Any]:
        present = [each for each in values if each is not None]
        if not all(isinstance(each, list) for each in present):
            raise _Unfit
        return [value for each in present for value in pick(each)]

    return step


def _cut(items: list[Any], start: int, end: int, every: int) -> list[Any]:
    """Return a slice of a list; unlike in Python, it must be within the list."""
    size = len(items)
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    if start == end:
        return []
    if not 0 <= start < size or not start <= end <= size or every < 1:
        raise _Unfit
    return items[start:end:every]


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _wildcard(values: list[Any]) -> list[Any]:
    return [child for each in values for child in _children(each)]


def _descend(values: list[Any]) -> list[Any]:
    descendants: list[Any] = []
    for each in values:
        children = _children(each)
        if children:
            descendants += [each, *_descend(children)]
    return descendants


def _filter(text: str) -> tuple[int, Step]:
    match = _FILTER.match(text)
    if match is None:
        raise BadPath(text)
    compared = _COMPARED.fullmatch(match[1])
    if compared is None:
        steps = list(_steps(match[1].strip()))
        return match.end(), _filtered(lambda item: bool(_walk(steps, [item])))
    left, sign, right = compared.groups()
    if sign not in _OPERATORS:
        raise BadPath(text)
    return match.end(), _filtered(_comparison(left, _OPERATORS[sign], right))


def _filtered(passes: Callable[[Any], bool]) -> Step:
    def step(values: list[Any]) -> list[Any]:
        if not all(isinstance(each, list) for each in values):
            raise _Unfit
        return [item for each in values for item in each if passes(item)]

    return step


def _comparison(
    left: str, compare: Callable[[Any, Any], bool], right: str
) -> Callable[[Any], bool]:
    left_value, right_value = _operand(left.strip()), _operand(right.strip())

    def passes(item: Any) -> bool:
        left_values, right_values = left_value(item), right_value(item)
        if not left_values or not right_values:
            return False
        try:
            return compare(left_values[0], right_values[0])
        except TypeError:
            raise _Unfit from None

    return passes


def _operand(text: str) -> Callable[[Any], list[Any]]:
    if text[:1] in {'"', "'"} and text[-1:] == text[:1] and len(text) > 1:
        literal: Any = text[1:-1].replace(f"\\{text[0]}", text[0])
    elif text in {"true", "false"}:
        literal = text == "true"
    elif re.fullmatch(r"[+-]?\d+(\.\d*)?", text):
        literal = float(text) if "." in text else int(text)
    else:
        steps = list(_steps(text))
        return lambda item: _walk(steps, [item])
    return lambda _item: [literal]
