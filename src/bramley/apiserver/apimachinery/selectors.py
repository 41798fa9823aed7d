"""Label and field selectors: parsed once per request, then matched against many records.

The grammar and the error messages are those of kube-apiserver, because people and tools read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.apimachinery.status import bad_request
from bramley.apiserver.store.records import Record
from bramley.base.errors import Cause

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^=!(),<>\s]+)")
_OPERATORS = {
    "in": "in",
    "notin": "notin",
    "=": "in",
    "==": "in",
    "!=": "notin",
    ">": "gt",
    "<": "lt",
}
_EXPECTED = "in, notin, =, ==, !=, gt, lt"
_SYMBOLS = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_FIELD_OPERATORS = re.compile(r"(?<!\\)(?:\\\\)*(!=|==|=)")


class Requirement(NamedTuple):
    """One condition on one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, text: str) -> bool:
        try:
            value = int(text)
        except ValueError:
            return False
        bound = int(next(iter(self.values)))
        return value > bound if self.operator == "gt" else value < bound


class FieldTerm(NamedTuple):
    """One condition on one field."""

    field: str
    value: str
    equal: bool


class Selection(msgspec.Struct, frozen=True):
    """The selectors of a list or watch; without any, everything is selected."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Return whether every object is selected."""
        return not self.labels and not self.fields

    def matches(self, record: Record) -> bool:
        """Return whether an object is selected."""
        for term in self.fields:
            if (_field(record, term.field) == term.value) is not term.equal:
                return False
        return all(each.matches(record.labels) for each in self.labels)

    def required_value(self, field: str) -> str | None:
        """Return the value that a field must have, if the selection requires one."""
        for term in self.fields:
            if term.field == field and term.equal:
                return term.value
        return None


EVERYTHING = Selection()


def _field(record: Record, field: str) -> str:
    if field == "metadata.name":
        return record.key.name
    if field == "metadata.namespace":
        return record.key.namespace
    return record.fields.get(field, "")


class _ParseError(ValueError):
    """A part of a selector that cannot be parsed."""


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector; raise a 400 that names what was found and what was expected."""
    try:
        return tuple(_Parser(text).requirements())
    except _ParseError as error:
        raise bad_request(str(error)) from None


class _Parser:
    """Parses one label selector from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), ""]
        self._at = 0

    def requirements(self) -> Iterable[Requirement]:
        """Yield the requirements in order."""
        if self._peek() and not self._starts():
            raise _ParseError(
                f"found '{self._peek()}', expected: !, identifier, or 'end of string'"
            )
        while self._peek():
            try:
                yield self._requirement()
            except _ParseError as error:
                raise _ParseError(f"unable to parse requirement: {error}") from None
            self._separator()

    def _separator(self) -> None:
        symbol = self._next()
        if symbol and symbol != ",":
            raise _ParseError(f"found '{symbol}', expected: ',' or 'end of string'")
        if symbol and not self._starts():
            raise _ParseError(f"found '{self._peek()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        key = self._next()
        negated = key == "!"
        if negated:
            key = self._next()
        if not key or key in _SYMBOLS:
            raise _ParseError(f"found '{key}', expected: identifier")
        _raise_if_any(causes.invalid("<nil>", key, each) for each in names.qualified_name(key))
        if negated or self._peek() in {"", ","}:
            return Requirement(key, "absent" if negated else "exists")
        return self._compared(key)

    def _compared(self, key: str) -> Requirement:
        symbol = self._next()
        operator = _OPERATORS.get(symbol)
        if operator is None:
            raise _ParseError(f"found '{symbol}', expected: {_EXPECTED}")
        values = self._set() if symbol in {"in", "notin"} else [self._exact()]
        _raise_if_any(_validate_values(key, operator, sorted(values)))
        return Requirement(key, operator, frozenset(values))

    def _exact(self) -> str:
        if self._peek() in {"", ","}:
            return ""
        symbol = self._next()
        if symbol in _SYMBOLS:
            raise _ParseError(f"found '{symbol}', expected: identifier")
        return symbol

    def _set(self) -> set[str]:
        symbol = self._next()
        if symbol != "(":
            raise _ParseError(f"found '{symbol}' expected: '('")
        if self._peek() == ")":
            self._next()
            return {""}
        if not self._peek() or (self._peek() in _SYMBOLS and self._peek() != ","):
            raise _ParseError(f"found '{self._peek()}', expected: ',', ')' or identifier")
        return self._listed()

    def _listed(self) -> set[str]:
        values: set[str] = set()
        while True:
            symbol = self._next()
            if symbol == ",":
                values |= {""} if not values or self._peek() in {",", ")"} else set()
                if self._peek() == ",":
                    self._next()
            elif symbol and symbol not in _SYMBOLS:
                values.add(symbol)
                if self._peek() not in {",", ")"}:
                    raise _ParseError(f"found '{self._peek()}', expected: ',' or ')'")
            else:
                raise _ParseError(f"found '{symbol}', expected: ',', or identifier")
            if self._peek() == ")":
                self._next()
                return values

    def _starts(self) -> bool:
        return self._peek() == "!" or self._peek() not in {"", *_SYMBOLS}

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _next(self) -> str:
        symbol = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return symbol


def _validate_values(key: str, operator: str, values: list[str]) -> Iterable[Cause]:
    for index, value in enumerate(values):
        if operator in {"gt", "lt"} and not re.fullmatch(r"[+-]?\d+", value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            yield causes.invalid(f"values[{index}]", value, detail)
        for each in names.label_value(value):
            yield causes.invalid(f"values[{index}][{key}]", value, each)


def _raise_if_any(errors: Iterable[Cause]) -> None:
    messages = [f"{each.field}: {each.message}" for each in errors]
    if messages:
        raise _ParseError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")


def parse_fields(text: str, resolve: Callable[[str], str]) -> tuple[FieldTerm, ...]:
    """Parse a field selector; `resolve` turns a field's name into the stored one, or raises a 400."""
    terms = []
    for term in _split_terms(text):
        if term:
            field, equal, value = _split_term(term, text)
            terms.append(FieldTerm(resolve(field), _unescaped(value), equal))
    return tuple(terms)


def _split_terms(text: str) -> list[str]:
    terms, start, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == ",":
            terms.append(text[start:at])
            start = at + 1
        at += 1
    return [*terms, text[start:]]


def _split_term(term: str, whole: str) -> tuple[str, bool, str]:
    match = _FIELD_OPERATORS.search(term)
    if match is None:
        raise bad_request(f"invalid selector: '{whole}'; can't understand '{term}'")
    return term[: match.start(1)], match.group(1) != "!=", term[match.end(1) :]


def _unescaped(value: str) -> str:
    out, at = [], 0
    while at < len(value):
        if value[at] != "\\":
            out.append(value[at])
        elif value[at + 1 : at + 2] in {"\\", ",", "="}:
            at += 1
            out.append(value[at])
        else:
            raise bad_request(
                f"invalid field selector: invalid escape sequence: {value[at : at + 2]}"
            )
        at += 1
    return "".join(out)
