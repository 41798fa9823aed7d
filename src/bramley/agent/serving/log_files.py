"""Reads one log file by lines, with bounds for a single read, for the distance from the end, and for the length of a line.

It follows a file that grows, and one that was rotated. The caller opens the files and decides which ones are allowed.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import BinaryIO

from bramley.agent.serving.sources import Line

_MAX_RECORDS = 4096


class LineTimes:
    """When a file had which size, to date its lines; sizes and times both increase."""

    __slots__ = ("_resolution", "_sizes", "_times")

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._times: list[datetime] = []
        self._resolution = timedelta(seconds=1)

    def record(self, size: int, at: datetime) -> None:
        """Record the size at this time; a smaller size than before means that the file was truncated."""
        if self._sizes and size < self._sizes[-1]:
            self._sizes, self._times = [], []
        if self._sizes and size == self._sizes[-1]:
            return
        at = max(at, self._times[-1]) if self._times else at
        if len(self._times) > 1 and at - self._times[-2] < self._resolution:
            self._sizes[-1], self._times[-1] = size, at
            return
        self._sizes.append(size)
        self._times.append(at)
        if len(self._sizes) > _MAX_RECORDS:
            # Half the resolution, for twice the time.
            self._sizes, self._times = self._sizes[1::2], self._times[1::2]
            self._resolution *= 2

    def at(self, offset: int, now: datetime) -> datetime:
        """Return when the line that starts at this offset was first seen."""
        index = bisect_right(self._sizes, offset)
        return self._times[index] if index < len(self._times) else now


Open = Callable[[], BinaryIO | None]

MAX_BACKLOG_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024
_MAX_READS = MAX_BACKLOG_BYTES // _READ_BYTES + 2
# tart prints the address of a VM's screen with its password.
_SCREEN = re.compile(rb"vnc://[^\s]+")


class LogFile:
    """A reader of one log; `times` may be shared by many readers.

    If the log `rotates`, another file of the same name is its continuation; else it is a copy of what was already read.
    """

    def __init__(self, open_file: Open, times: LineTimes, *, rotates: bool) -> None:
        self._open_file = open_file
        self._times = times
        self._rotates = rotates
        self._file: BinaryIO | None = None
        self._offset = 0
        self._rest = b""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def new_lines(self, now: datetime) -> Iterator[Line]:
        """Yield the complete lines that were written since the last read, up to the size of one read."""
        chunk = self._read()
        if not chunk:
            return
        start = self._offset - len(chunk) - len(self._rest)
        text, self._rest, position = self._rest + chunk, b"", 0
        while True:
            end = text.find(b"\n", position, position + MAX_LINE_BYTES + 1)
            if end < 0 and len(text) - position <= MAX_LINE_BYTES:
                break
            stop = position + MAX_LINE_BYTES if end < 0 else end
            yield self._line(text[position:stop], start + position, now)
            position = stop + (end >= 0)
        self._rest = text[position:]

    def all_lines(self, now: datetime, *, partial: bool) -> Iterator[Line]:
        """Yield lines up to the end of the file; bounded, because the file may grow faster than it is read."""
        for _ in range(_MAX_READS):
            before = self._offset
            yield from self.new_lines(now)
            if self._offset == before:
                break
        if partial:
            yield from self.last_line(now)

    def last_line(self, now: datetime) -> Iterator[Line]:
        """Yield the text after the last newline."""
        if self._rest:
            yield self._line(self._rest, self._offset - len(self._rest), now)
            self._rest = b""

    def _line(self, text: bytes, start: int, now: datetime) -> Line:
        redacted = _SCREEN.sub(b"vnc://REDACTED", text.removesuffix(b"\r"))
        return Line(self._times.at(start, now), redacted)

    def _read(self) -> bytes:
        if self._file is None:
            self._open()
        if self._file is None:
            return b""
        size = os.fstat(self._file.fileno()).st_size
        if size < self._offset:
            # The file was truncated since the last read.
            self._offset, self._rest = 0, b""
        chunk = os.pread(self._file.fileno(), _READ_BYTES, self._offset)
        self._offset += len(chunk)
        # Only at the end of the old file: its last lines come before those of its successor.
        return chunk if chunk or not self._open_successor() else self._read()

    def _open(self) -> None:
        self._file = self._open_file()
        self._offset, self._rest = 0, b""
        if self._file is None:
            return
        size = os.fstat(self._file.fileno()).st_size
        if size > MAX_BACKLOG_BYTES:
            self._offset = _line_start(self._file.fileno(), size - MAX_BACKLOG_BYTES)

    def _open_successor(self) -> bool:
        """Switch to the file that has the name now, if it is a different one and not empty; return whether it did."""
        successor = self._open_file() if self._rotates else None
        if successor is None or self._file is None:
            return False
        ours, theirs = os.fstat(self._file.fileno()), os.fstat(successor.fileno())
        if ours.st_ino == theirs.st_ino or not theirs.st_size:
            successor.close()
            return False
        self._file.close()
        self._file, self._offset, self._rest = successor, 0, b""
        return True


def _line_start(descriptor: int, offset: int) -> int:
    """Return the start of the next line, if it is within the length of a line."""
    newline = os.pread(descriptor, MAX_LINE_BYTES, offset).find(b"\n")
    return offset + newline + 1
