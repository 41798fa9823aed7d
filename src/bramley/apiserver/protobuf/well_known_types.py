"""Types that are messages on the wire but not objects in JSON: times, quantities, durations, raw JSON."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from bramley.apiserver.protobuf import wire

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((3_600_000_000_000, "h"), (60_000_000_000, "m"))
_SMALL = ((1_000_000, "ms"), (1_000, "µs"), (1, "ns"))

Decoder = Callable[[memoryview], Any]


def text(data: memoryview) -> str:
    """Return a string; invalid UTF-8 is replaced, as Go's JSON encoder does it."""
    return bytes(data).decode(errors="replace")


def double(data: memoryview) -> float:
    """Return a double."""
    value: float = struct.unpack("<d", data)[0]
    return value


def _numbered(data: memoryview, message: str) -> dict[int, wire.Entry]:
    return {each.number: each for each in wire.entries(data, message)}


def _integer(fields: dict[int, wire.Entry], number: int, bits: int = 64) -> int:
    entry = fields.get(number)
    return 0 if entry is None else wire.signed(entry.as_number(str(number)), bits)


def _string(fields: dict[int, wire.Entry], number: int) -> str:
    entry = fields.get(number)
    return "" if entry is None else text(entry.as_bytes(str(number)))


def _timestamp(data: memoryview) -> datetime | None:
    """Return a time, or None for the zero time."""
    fields = _numbered(data, "Timestamp")
    seconds, nanos = _integer(fields, 1), _integer(fields, 2, 32)
    if not seconds and not nanos:
        return None
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise wire.Malformed("Time.MarshalJSON: year outside of range [0,9999]") from None


def _time(layout: str, data: memoryview) -> str | None:
    timestamp = _timestamp(data)
    return None if timestamp is None else timestamp.strftime(layout)


def _int_or_string(data: memoryview) -> int | str:
    fields = _numbered(data, "IntOrString")
    return _string(fields, 3) if _integer(fields, 1) else _integer(fields, 2, 32)


def _raw(data: memoryview) -> Any:
    entry = _numbered(data, "RawExtension").get(1)
    if entry is None or not len(entry.as_bytes("raw")):
        return None
    try:
        return msgspec.json.decode(entry.as_bytes("raw"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise wire.Malformed(str(error)) from None


def duration_text(nanoseconds: int) -> str:
    """Return a duration in Go's format, such as `1m30s`."""
    if not nanoseconds:
        return "0s"
    sign, remaining = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if remaining < 1_000_000_000:
        size, unit = next(each for each in _SMALL if remaining >= each[0])
        return f"{sign}{_decimal(remaining, size)}{unit}"
    text = ""
    for size, unit in _UNITS:
        if remaining >= size or text:
            text += f"{remaining // size}{unit}"
            remaining %= size
    return f"{sign}{text}{_decimal(remaining, 1_000_000_000)}s"


def _decimal(value: int, size: int) -> str:
    whole, part = divmod(value, size)
    digits = str(part).zfill(len(str(size)) - 1).rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


WELL_KNOWN_TYPES: dict[str, Decoder] = {
    "time": partial(_time, "%Y-%m-%dT%H:%M:%SZ"),
    "microtime": partial(_time, "%Y-%m-%dT%H:%M:%S.%fZ"),
    "quantity": lambda data: _string(_numbered(data, "Quantity"), 1) or "0",
    "intorstring": _int_or_string,
    "duration": lambda data: duration_text(_integer(_numbered(data, "Duration"), 1)),
    "raw": _raw,
    "fields": _raw,
    "json": _raw,
}
