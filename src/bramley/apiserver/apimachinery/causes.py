"""Broken rules as Kubernetes words them: one constructor per kind of breach.

Each returns a `Cause` whose message is what a real server prints after the field's path. Nothing here decides what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from bramley.base.errors import Cause

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted(text: str) -> str:
    """Return the text in double quotes, with what cannot be printed escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def shown(value: object) -> str:
    """Return a value as a message shows it: text in quotes, numbers bare, the rest as JSON."""
    if isinstance(value, str):
        return quoted(value)
    try:
        encoded = msgspec.json.encode(value, order="sorted").decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair is no text that could be sent.
        encoded = json.dumps(value, sort_keys=True)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def invalid(field: str, value: object, detail: str) -> Cause:
    """Say that a value is malformed."""
    return Cause(field, "FieldValueInvalid", _joined(f"Invalid value: {shown(value)}", detail))


def wrong_type(field: str, value: object, detail: str) -> Cause:
    """Say that a value has another type than the field."""
    return Cause(field, "FieldValueTypeInvalid", _joined(f"Invalid value: {shown(value)}", detail))


def required(field: str, detail: str = "") -> Cause:
    """Say that a value is missing."""
    return Cause(field, "FieldValueRequired", _joined("Required value", detail))


def forbidden(field: str, detail: str) -> Cause:
    """Say that a value may not be set here and now."""
    return Cause(field, "FieldValueForbidden", _joined("Forbidden", detail))


def duplicate(field: str, value: object) -> Cause:
    """Say that a value occurs twice where it must be unique."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def not_found(field: str, value: object) -> Cause:
    """Say that what a value refers to does not exist."""
    return Cause(field, "FieldValueNotFound", f"Not found: {shown(value)}")


def unsupported(field: str, value: object, supported: Iterable[str]) -> Cause:
    """Say that a value is none of the allowed ones."""
    allowed = ", ".join(quoted(each) for each in supported)
    detail = f"supported values: {allowed}" if allowed else ""
    return Cause(
        field, "FieldValueNotSupported", _joined(f"Unsupported value: {shown(value)}", detail)
    )


def too_long(field: str, limit: int) -> Cause:
    """Say that a text has more bytes than allowed; the text itself is not repeated."""
    unit = "byte" if limit == 1 else "bytes"
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} {unit}")


def too_many(field: str, *, count: int, limit: int) -> Cause:
    """Say that a list has more items than allowed."""
    unit = "item" if limit == 1 else "items"
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} {unit}")


def _joined(body: str, detail: str) -> str:
    return f"{body}: {detail}" if detail else body


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
