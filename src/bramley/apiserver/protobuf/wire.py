"""The protobuf wire format: numbered fields, independent of messages and kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_MASK = 2**64 - 1


class Malformed(ValueError):
    """The bytes are not a valid message; the error is that of Go's decoder."""


class Entry(NamedTuple):
    """One encoded field: an integer for varints, else the bytes."""

    number: int
    wire_type: int
    value: int | memoryview

    def as_bytes(self, name: str) -> memoryview:
        """Return the bytes of a length-delimited field; raise Malformed for another wire type."""
        if isinstance(self.value, int) or self.wire_type != BYTES:
            raise self.mismatch(name)
        return self.value

    def as_number(self, name: str) -> int:
        """Return the integer of a varint field; raise Malformed for another wire type."""
        if not isinstance(self.value, int):
            raise self.mismatch(name)
        return self.value

    def mismatch(self, name: str) -> Malformed:
        """Return the error for a field of the wrong wire type."""
        shown = "ObjectMeta" if name == "metadata" else name[:1].upper() + name[1:]
        return Malformed(f"proto: wrong wireType = {self.wire_type} for field {shown}")


def entries(data: memoryview, message: str) -> Iterator[Entry]:
    """Yield the fields of a message in the order of its bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire_type = (tag >> 3) & 0x7FFFFFFF, tag & 7
        if wire_type == END_GROUP:
            raise Malformed(f"proto: {message}: wiretype end group for non-group")
        if not number:
            raise Malformed(f"proto: {message}: illegal tag {number} (wire type {tag})")
        value, at = _value(data, at, wire_type)
        yield Entry(number, wire_type, value)


def _value(data: memoryview, at: int, wire_type: int) -> tuple[int | memoryview, int]:
    if wire_type == VARINT:
        return varint(data, at)
    if wire_type == BYTES:
        length, at = varint(data, at)
        return _cut(data, at, length)
    if wire_type in _WIDTHS:
        return _cut(data, at, _WIDTHS[wire_type])
    # Groups are deprecated; no message of Kubernetes has one.
    raise Malformed(f"proto: illegal wireType {wire_type}")


def _cut(data: memoryview, at: int, length: int) -> tuple[memoryview, int]:
    if length >= 2**63:
        raise Malformed("proto: negative length found during unmarshaling")
    if at + length > len(data):
        raise Malformed("unexpected EOF")
    return data[at : at + length], at + length


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a varint and the index after it."""
    result = shift = 0
    for index in range(at, min(at + 10, len(data))):
        byte = data[index]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK, index + 1
        shift += 7
    if shift >= 70:
        raise Malformed("proto: integer overflow")
    raise Malformed("unexpected EOF")


def signed(value: int, bits: int) -> int:
    """Return a varint as a signed integer of that width."""
    value &= 2**bits - 1
    return value - 2**bits if value >= 2 ** (bits - 1) else value
