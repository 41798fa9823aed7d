"""Checks of one value without its children: type, length, pattern, format, range, count, enumeration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema import string_formats
from bramley.apiserver.schema.patterns import BadPattern, compile_pattern
from bramley.apiserver.schema.values import INT64, NO_FIELD, Schema, Visit, printable, same
from bramley.base.errors import Cause

TYPE_NAMES: Mapping[type, str] = MappingProxyType(
    {
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        dict: "object",
        list: "array",
        type(None): "null",
    }
)
_FORMAT_NAMES: Mapping[type, str] = MappingProxyType({int: "int64", float: "float64"})


def type_check(schema: Schema, kind: type) -> Visit | None:
    """Return the type check for values of this Python type, or None if they are always valid."""
    types = _allowed_types(schema)
    name = TYPE_NAMES[kind]
    if not types or name in types or (kind is int and "number" in types):
        return _fits_int64(types) if kind is int and "integer" in types else None
    if kind is type(None) and schema.get("nullable"):
        return None
    if kind is float and "integer" in types:
        return _whole_number(types)
    if kind is type(None) or not _format(schema):
        return _wrong_type(",".join(types), name)
    return _wrong_type(schema["format"], _FORMAT_NAMES.get(kind, ""))


def text_checks(schema: Schema) -> list[Visit | None]:
    """Return the checks of a string: length and pattern, of which the first violation is reported, and format."""
    rules = [_max_length(schema), _min_length(schema), _pattern(schema)]
    found = [rule for rule in rules if rule is not None]

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        for rule in found:
            cause = rule(value, path)
            if cause is not None:
                out.append(cause)
                return

    return [check if found else None, _format_check(schema)]


def number_checks(schema: Schema) -> list[Visit | None]:
    """Return the checks of a number's range and divisor."""
    return [_multiple_of(schema), _bound(schema, "minimum"), _bound(schema, "maximum")]


def item_count(schema: Schema) -> Visit | None:
    """Return the check of a list's length."""
    return _count(schema.get("minItems"), schema.get("maxItems"), "items")


def field_count(schema: Schema) -> Visit | None:
    """Return the check of an object's number of fields."""
    return _count(schema.get("minProperties"), schema.get("maxProperties"), "properties")


def enumeration(schema: Schema) -> Visit | None:
    """Return the check that a value is in the enumeration."""
    allowed = schema.get("enum")
    if not allowed:
        return None
    listed = [one if isinstance(one, str) else causes.shown(one) for one in allowed]

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        if not any(same(value, one) or _same_number(value, one) for one in allowed):
            out.append(causes.unsupported(path, printable(value), listed))

    return check


def _same_number(value: Any, one: Any) -> bool:
    return {type(value), type(one)} == {int, float} and bool(value == one)


def _allowed_types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _format(schema: Schema) -> Callable[[str], bool] | None:
    return string_formats.checker(schema.get("format") or "")


def _wrong_type(types: str, got: str) -> Visit:
    def check(_value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        detail = f"{path} in body must be of type {types}: {causes.quoted(got)}"
        out.append(causes.wrong_type(path or NO_FIELD, got, detail))

    return check


def _whole_number(types: tuple[str, ...]) -> Visit:
    wrong = _wrong_type(",".join(types), "number")

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if not value.is_integer() or abs(value) >= 2**53:
            wrong(value, old, path, out)

    return check


def _fits_int64(types: tuple[str, ...]) -> Visit:
    wrong = _wrong_type(",".join(types), "number")

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if value not in INT64:
            wrong(value, old, path, out)

    return check


TextRule = Callable[[str, str], Cause | None]


def _max_length(schema: Schema) -> TextRule | None:
    maximum = schema.get("maxLength")
    if maximum is None:
        return None
    return lambda value, path: causes.too_long(path, maximum) if len(value) > maximum else None


def _min_length(schema: Schema) -> TextRule | None:
    minimum = schema.get("minLength")
    if minimum is None:
        return None

    def rule(value: str, path: str) -> Cause | None:
        if len(value) >= minimum:
            return None
        return causes.invalid(
            path, value, f"{path} in body should be at least {minimum} chars long"
        )

    return rule


def _pattern(schema: Schema) -> TextRule | None:
    pattern = schema.get("pattern")
    if not pattern:
        return None
    search = _searcher(pattern)

    def rule(value: str, path: str) -> Cause | None:
        if search(value):
            return None
        return causes.invalid(path, value, f"{path} in body should match '{pattern}'")

    return rule


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
            detail = f"{path} in body should be a multiple of {causes.shown(printable(factor))}"
            out.append(causes.invalid(path, printable(value), detail))

    return check


_BOUNDS: Mapping[tuple[str, bool], tuple[str, Callable[[float, float], bool]]] = MappingProxyType(
    {
        ("minimum", False): ("greater than or equal to", lambda value, bound: value >= bound),
        ("minimum", True): ("greater than", lambda value, bound: value > bound),
        ("maximum", False): ("less than or equal to", lambda value, bound: value <= bound),
        ("maximum", True): ("less than", lambda value, bound: value < bound),
    }
)


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
            detail = f"{path} in body should be {relation} {causes.shown(printable(against))}"
            out.append(causes.invalid(path, printable(value), detail))

    return check


def _count(minimum: int | None, maximum: int | None, noun: str) -> Visit | None:
    if minimum is None and maximum is None:
        return None

    def check(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        count = len(value)
        if minimum is not None and count < minimum:
            detail = f"{path} in body should have at least {minimum} {noun}"
            out.append(causes.invalid(path, count, detail))
        if maximum is not None and count > maximum:
            out.append(causes.too_many(path, count=count, limit=maximum))

    return check
