"""When which part of a file was there. Neither tart nor a guest dates its lines, so the agent notes how far a log had come.

A line is as old as the first note that covers it: a second late at most while the agent runs, and no older than the file's
last change for what was written before it came.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta

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
        place = bisect_right(self._sizes, offset)
        return self._times[place] if place < len(self._times) else now
