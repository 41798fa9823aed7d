"""Where a Linux binary looks for its libraries: rewrites the list in place, so that a tree of them can be moved.

Only a text that is not longer than the one before can be written in place; that is enough here, since what we write is
shorter than nearly every absolute path of a library folder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bramley.base.errors import BadConfiguration

_MAGIC = b"\x7fELF\x02\x01"  # of 64 bits, little endian
_LOAD, _DYNAMIC = 1, 2
_END, _STRINGS, _RPATH, _RUNPATH = 0, 5, 15, 29


def is_elf(contents: bytes) -> bool:
    """Tell whether this is a binary that can be rewritten."""
    return contents.startswith(_MAGIC)


def search_path(contents: bytes) -> str:
    """Return the folders in which a binary looks for its libraries, with colons between; empty if it names none."""
    place = next(_places(contents), None)
    return _text(contents, place).decode() if place is not None else ""


def with_search_path(contents: bytes, change: Callable[[str], str]) -> bytes:
    """Return the binary with its list of folders changed."""
    changed = bytearray(contents)
    # Two entries may share one text, which is changed once.
    for place in sorted(set(_places(contents))):
        before = _text(contents, place)
        after = change(before.decode()).encode()
        if len(after) > len(before):
            raise BadConfiguration(
                f"{after.decode()} does not fit in the place of {before.decode()}; use a Python with a longer prefix"
            )
        changed[place : place + len(before)] = after.ljust(len(before), b"\0")
    return bytes(changed)


def _text(contents: bytes, place: int) -> bytes:
    return contents[place : contents.index(b"\0", place)]


@dataclass(frozen=True, slots=True)
class _Segment:
    type: int
    offset: int
    address: int
    size: int


def _places(contents: bytes) -> Iterator[int]:
    """Yield the offsets of the texts of RPATH and RUNPATH."""
    if not is_elf(contents):
        return
    segments = list(_segments(contents))
    for dynamic in (one for one in segments if one.type == _DYNAMIC):
        entries = list(_entries(contents, dynamic))
        strings = dict(entries).get(_STRINGS)
        for tag, value in entries:
            if strings is not None and tag in {_RPATH, _RUNPATH}:
                yield _offset(segments, strings + value)


def _segments(contents: bytes) -> Iterator[_Segment]:
    (table,) = struct.unpack_from("<Q", contents, 32)
    entry, count = struct.unpack_from("<HH", contents, 54)
    for number in range(count):
        type, _, offset, address, _, size = struct.unpack_from(
            "<IIQQQQ", contents, table + number * entry
        )
        yield _Segment(type, offset, address, size)


def _entries(contents: bytes, dynamic: _Segment) -> Iterator[tuple[int, int]]:
    for offset in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
        tag, value = struct.unpack_from("<QQ", contents, offset)
        if tag == _END:
            return
        yield tag, value


def _offset(segments: list[_Segment], address: int) -> int:
    for one in segments:
        if one.type == _LOAD and one.address <= address < one.address + one.size:
            return address - one.address + one.offset
    raise BadConfiguration("a binary of this Python names its strings outside of itself")
