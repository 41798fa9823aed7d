"""Validation errors with the messages of Kubernetes: one constructor per type of error.

Each returns a `Cause` whose message is what kube-apiserver prints after the field's path; the last three check common rules.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

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
    """Return the text in double quotes, with unprintable characters escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def text(value: object) -> str:
    """Return a value as a message shows it: text in quotes, numbers bare, the rest as JSON."""
    if isinstance(value, str):
        return quoted(value)
    try:
        encoded = msgspec.json.encode(value, order="sorted").decode()
    except UnicodeEncodeError:
        # msgspec refuses half of a surrogate pair, which is not valid UTF-8.
        encoded = json.dumps(value, sort_keys=True)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def invalid(field: str, value: object, detail: str) -> Cause:
    """Return the cause for a malformed value."""
    return Cause(field, "FieldValueInvalid", _format(f"Invalid value: {text(value)}", detail))


def wrong_type(field: str, value: object, detail: str) -> Cause:
    """Return the cause for a value of another type than its field."""
    return Cause(field, "FieldValueTypeInvalid", _format(f"Invalid value: {text(value)}", detail))


def required(field: str, detail: str = "") -> Cause:
    """Return the cause for a missing value."""
    return Cause(field, "FieldValueRequired", _format("Required value", detail))


def forbidden(field: str, detail: str) -> Cause:
    """Return the cause for a value that may not be set."""
    return Cause(field, "FieldValueForbidden", _format("Forbidden", detail))


def duplicate(field: str, value: object) -> Cause:
    """Return the cause for a value that is not unique."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {text(value)}")


def not_found(field: str, value: object) -> Cause:
    """Return the cause for a reference to something that does not exist."""
    return Cause(field, "FieldValueNotFound", f"Not found: {text(value)}")


def unsupported(field: str, value: object, supported: Iterable[str]) -> Cause:
    """Return the cause for a value that is not one of the supported ones."""
    allowed = ", ".join(quoted(each) for each in supported)
    detail = f"supported values: {allowed}" if allowed else ""
    return Cause(
        field, "FieldValueNotSupported", _format(f"Unsupported value: {text(value)}", detail)
    )


def too_long(field: str, limit: int) -> Cause:
    """Return the cause for a text with too many bytes, without the text."""
    unit = "byte" if limit == 1 else "bytes"
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} {unit}")


def too_many(field: str, *, count: int, limit: int) -> Cause:
    """Return the cause for a list with too many items."""
    unit = "item" if limit == 1 else "items"
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} {unit}")


def invalid_each(field: str, value: object, details: Iterable[str]) -> list[Cause]:
    """Return one cause for each way in which a value is malformed."""
    return [invalid(field, value, detail) for detail in details]


def missing(holder: Mapping[str, object], names: Iterable[str], field: str) -> list[Cause]:
    """Return a cause for each named field that is absent or empty."""
    return [required(f"{field}.{name}") for name in names if not holder.get(name)]


def not_one_of(field: str, value: object, supported: Collection[str]) -> list[Cause]:
    """Return a cause unless the value is one of the supported ones."""
    return [] if value in supported else [unsupported(field, value, supported)]


def _format(body: str, detail: str) -> str:
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
