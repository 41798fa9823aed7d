"""One log file, read in lines: bounded in what is read at once, in how far back, and in the length of a line.

It follows a file that grows, and one that was begun anew under the same name. Who opens it decides what may be opened.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import BinaryIO

from bramley.agent.serving.sources import Line

_MOST = 4096


class LineTimes:
    """The notes about one file, sizes and times both growing."""

    __slots__ = ("_apart", "_sizes", "_times")

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._times: list[datetime] = []
        self._apart = timedelta(seconds=1)

    def note(self, size: int, at: datetime) -> None:
        """Know that the file had this size at this time; a smaller one means that it was begun anew."""
        if self._sizes and size < self._sizes[-1]:
            self._sizes, self._times = [], []
        if self._sizes and size == self._sizes[-1]:
            return
        at = max(at, self._times[-1]) if self._times else at
        if len(self._times) > 1 and at - self._times[-2] < self._apart:
            self._sizes[-1], self._times[-1] = size, at
            return
        self._sizes.append(size)
        self._times.append(at)
        if len(self._sizes) > _MOST:
            # Half as exact, for twice as long.
            self._sizes, self._times = self._sizes[1::2], self._times[1::2]
            self._apart *= 2

    def at(self, offset: int, now: datetime) -> datetime:
        """Return when what begins here was first seen."""
        index = bisect_right(self._sizes, offset)
        return self._times[index] if index < len(self._times) else now


Open = Callable[[], BinaryIO | None]

FARTHEST_BACK_BYTES = 4 * 1024 * 1024
LONGEST_LINE_BYTES = 64 * 1024
_AT_ONCE_BYTES = 256 * 1024
_MOST_READS = FARTHEST_BACK_BYTES // _AT_ONCE_BYTES + 2
# tart prints the way to a VM's screen with the password in it.
_SCREEN = re.compile(rb"vnc://[^\s]+")


class LogFile:
    """A log as far as it was read; `times` may be shared by many readers.

    Another file of the same name is the log's next one if it `renews` itself, else another copy of what was read.
    """

    def __init__(self, opening: Open, times: LineTimes, *, renews: bool) -> None:
        self._opening = opening
        self._times = times
        self._renews = renews
        self._file: BinaryIO | None = None
        self._offset = 0
        self._rest = b""

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def new_lines(self, now: datetime) -> Iterator[Line]:
        """Yield what was written since the last look, whole lines only, as much as is read at once."""
        chunk = self._read()
        if not chunk:
            return
        start = self._offset - len(chunk) - len(self._rest)
        text, self._rest, at = self._rest + chunk, b"", 0
        while True:
            end = text.find(b"\n", at, at + LONGEST_LINE_BYTES + 1)
            if end < 0 and len(text) - at <= LONGEST_LINE_BYTES:
                break
            stop = at + LONGEST_LINE_BYTES if end < 0 else end
            yield self._line(text[at:stop], start + at, now)
            at = stop + (end >= 0)
        self._rest = text[at:]

    def all_lines(self, now: datetime, *, rest: bool) -> Iterator[Line]:
        """Yield lines up to the end of the file, or as far as one may go who reads a file that grows faster."""
        for _ in range(_MOST_READS):
            before = self._offset
            yield from self.new_lines(now)
            if self._offset == before:
                break
        if rest:
            yield from self.last_line(now)

    def last_line(self, now: datetime) -> Iterator[Line]:
        """Yield what stands behind the last line's end."""
        if self._rest:
            yield self._line(self._rest, self._offset - len(self._rest), now)
            self._rest = b""

    def _line(self, text: bytes, start: int, now: datetime) -> Line:
        shown = _SCREEN.sub(b"vnc://REDACTED", text.removesuffix(b"\r"))
        return Line(self._times.at(start, now), shown)

    def _read(self) -> bytes:
        if self._file is None:
            self._open()
        if self._file is None:
            return b""
        size = os.fstat(self._file.fileno()).st_size
        if size < self._offset:
            # Cut to nothing under our hands, and begun anew.
            self._offset, self._rest = 0, b""
        chunk = os.pread(self._file.fileno(), _AT_ONCE_BYTES, self._offset)
        self._offset += len(chunk)
        return chunk if chunk or not self._was_replaced() else self._read()

    def _open(self) -> None:
        self._file = self._opening()
        self._offset, self._rest = 0, b""
        if self._file is None:
            return
        size = os.fstat(self._file.fileno()).st_size
        if size > FARTHEST_BACK_BYTES:
            self._offset = _line_start(self._file.fileno(), size - FARTHEST_BACK_BYTES)

    def _was_replaced(self) -> bool:
        """Turn to the file that has the name now, if it is another one than ours and not empty."""
        fresh = self._opening() if self._renews else None
        if fresh is None or self._file is None:
            return False
        ours, theirs = os.fstat(self._file.fileno()), os.fstat(fresh.fileno())
        if ours.st_ino == theirs.st_ino or not theirs.st_size:
            fresh.close()
            return False
        self._file.close()
        self._file, self._offset, self._rest = fresh, 0, b""
        return True


def _line_start(number: int, offset: int) -> int:
    """Return where the next line begins, if that is near."""
    found = os.pread(number, LONGEST_LINE_BYTES, offset).find(b"\n")
    return offset + found + 1
