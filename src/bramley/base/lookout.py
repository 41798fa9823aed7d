"""Cuts off works that take too long, with one timer for all: most end long before, and a timer for each would cost more.

The only way to cut off a task is to cancel it; as `asyncio.timeout` does, a work remembers how often its task had been
cancelled before, so that a cancellation that came from elsewhere too is not swallowed with ours.
"""

from __future__ import annotations

import asyncio
from typing import Any

# The timer looks this often while one deadline passes, so works are cut off at most so much later.
_LOOKS = 16
_NEVER = float("inf")


class Work:
    """What one task does within a deadline; it may be begun and ended again and again."""

    __slots__ = ("_cancelled_before", "_task", "ends", "is_late")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._cancelled_before = 0
        self.ends = _NEVER
        self.is_late = False

    def cut(self) -> None:
        """End the work, whatever it waits for."""
        if not self.is_late:
            self.is_late = True
            self._cancelled_before = self._task.cancelling()
            self._task.cancel()

    def end(self) -> bool:
        """Take our cancellation back, if there was one; tell whether it was the only one."""
        self.ends = _NEVER
        if not self.is_late:
            return False
        self.is_late = False
        return self._task.uncancel() <= self._cancelled_before


class Lookout:
    """Looks at works now and then, and cuts off those whose time is over."""

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._works: set[Work] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, work: Work) -> None:
        """Look at a work from now on; it has time once it is begun."""
        self._works.add(work)
        if self._timer is None:
            self._look()

    def begin(self, work: Work) -> None:
        """Give a work its time."""
        work.ends = asyncio.get_running_loop().time() + self.limit_seconds

    def remove(self, work: Work) -> None:
        """Look at it no longer; the timer ends by itself when nothing is left."""
        self._works.discard(work)

    def rest(self) -> None:
        """End the timer at once when there is nothing to look at."""
        if not self._works and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for work in tuple(self._works):
            # Strictly later: whoever has the same limit and a timer of their own goes first and says what was late.
            if work.ends < now:
                work.cut()
        pause = self.limit_seconds / _LOOKS
        self._timer = loop.call_later(pause, self._look) if self._works else None
