"""Checks of one value without its children: type, length, pattern, format, range, count, enumeration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema import string_formats
from bramley.apiserver.schema.patterns import BadPattern, compile_pattern
from bramley.apiserver.schema.values import INT64, NO_FIELD, Schema, Visit, printable, same
from bramley.base.errors import Cause

TYPE_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_FORMAT_NAMES: Mapping[type, str] = {int: "int64", float: "float64"}


def type_check(schema: Schema, kind: type) -> Visit | None:
    """Return the type check for values of this Python type, or None if they are always valid."""
    types = _allowed_types(schema)
    name = TYPE_NAMES[kind]
    if not types or name in types or (kind is int and "number" in types):
        is_integer = kind is int and "integer" in types
        return _validate_number(types, INT64.__contains__) if is_integer else None
    if kind is type(None) and schema.get("nullable"):
        return None
    if kind is float and "integer" in types:
        return _validate_number(types, lambda value: value.is_integer() and abs(value) < 2**53)
    if kind is type(None) or not _format(schema):
        return _validate_type(",".join(types), name)
    return _validate_type(schema["format"], _FORMAT_NAMES.get(kind, ""))


def text_checks(schema: Schema) -> list[Visit | None]:
    """Return the checks of a string: length and pattern, of which the first violation is reported, and format."""
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern")
    search = _searcher(pattern) if pattern else None

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        if longest is not None and len(value) > longest:
            out.append(causes.too_long(path, longest))
        elif shortest is not None and len(value) < shortest:
            detail = f"{path} in body should be at least {shortest} chars long"
            out.append(causes.invalid(path, value, detail))
        elif search is not None and not search(value):
            out.append(causes.invalid(path, value, f"{path} in body should match '{pattern}'"))

    is_limited = longest is not None or shortest is not None or search is not None
    return [check if is_limited else None, _format_check(schema)]


def number_checks(schema: Schema) -> list[Visit | None]:
    """Return the checks of a number's range and divisor."""
    return [_multiple_of(schema), _bound(schema, "minimum"), _bound(schema, "maximum")]


def count_check(schema: Schema, word: str) -> Visit | None:
    """Return the check of the number of `Items` of a list, or of `Properties` of an object."""
    minimum, maximum = schema.get(f"min{word}"), schema.get(f"max{word}")
    if minimum is None and maximum is None:
        return None

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        count = len(value)
        if minimum is not None and count < minimum:
            detail = f"{path} in body should have at least {minimum} {word.lower()}"
            out.append(causes.invalid(path, count, detail))
        if maximum is not None and count > maximum:
            out.append(causes.too_many(path, count=count, limit=maximum))

    return check


def enumeration(schema: Schema) -> Visit | None:
    """Return the check that a value is in the enumeration."""
    allowed = schema.get("enum")
    if not allowed:
        return None
    listed = [choice if isinstance(choice, str) else causes.text(choice) for choice in allowed]

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        if not any(same(value, choice) or _same_number(value, choice) for choice in allowed):
            out.append(causes.unsupported(path, printable(value), listed))

    return check


def _same_number(value: Any, choice: Any) -> bool:
    return {type(value), type(choice)} == {int, float} and bool(value == choice)


def _allowed_types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _format(schema: Schema) -> Callable[[str], bool] | None:
    return string_formats.checker(schema.get("format") or "")


def _validate_type(types: str, got: str) -> Visit:
    def check(_value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        detail = f"{path} in body must be of type {types}: {causes.quoted(got)}"
        out.append(causes.wrong_type(path or NO_FIELD, got, detail))

    return check


def _validate_number(types: tuple[str, ...], fits: Callable[[Any], bool]) -> Visit:
    wrong = _validate_type(",".join(types), "number")

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if not fits(value):
            wrong(value, old, path, out)

    return check


def _searcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    try:
        return compile_pattern(pattern).search
    except BadPattern:
        # The validation of the schema reports the pattern; here an invalid pattern matches nothing.
        return lambda _: None


def _format_check(schema: Schema) -> Visit | None:
    valid = _format(schema)
    if valid is None:
        return None
    name = schema["format"]

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        if not valid(value):
            detail = f"{path} in body must be of type {name}: {causes.quoted(value)}"
            out.append(causes.wrong_type(path, value, detail))

    return check


def _multiple_of(schema: Schema) -> Visit | None:
    factor = schema.get("multipleOf")
    if not factor:
        return None

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        quotient = value / factor if factor >= 1 else (1 / factor) * value
        if abs(quotient - round(quotient)) > 1e-9:
            detail = f"{path} in body should be a multiple of {causes.text(printable(factor))}"
            out.append(causes.invalid(path, printable(value), detail))

    return check


_BOUNDS: Mapping[tuple[str, bool], tuple[str, Callable[[float, float], bool]]] = {
    ("minimum", False): ("greater than or equal to", lambda value, bound: value >= bound),
    ("minimum", True): ("greater than", lambda value, bound: value > bound),
    ("maximum", False): ("less than or equal to", lambda value, bound: value <= bound),
    ("maximum", True): ("less than", lambda value, bound: value < bound),
}


def _bound(schema: Schema, word: str) -> Visit | None:
    bound = schema.get(word)
    if bound is None:
        return None
    exclusive = bool(schema.get(f"exclusive{word.capitalize()}"))
    relation, holds = _BOUNDS[word, exclusive]

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        # An integer is compared with the truncated bound, as Kubernetes does it.
        against = int(bound) if type(value) is int else bound
        if not holds(value, against):
            detail = f"{path} in body should be {relation} {causes.text(printable(against))}"
            out.append(causes.invalid(path, printable(value), detail))

    return check
