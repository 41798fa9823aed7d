"""One deadline for many short works, with one timer for all: most end long before, and a timer for each would cost more than they do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from bramley.base import errors

T = TypeVar("T")

# The timer looks this often while one deadline passes, so works are cut off at most so much later.
_LOOKS = 16
_NEVER = float("inf")


class Seat:
    """Lets one task do one work after the other, each within the deadline."""

    def __init__(self, task: asyncio.Task[Any], limit: float) -> None:
        self._task = task
        self._limit = limit
        self._time = asyncio.get_running_loop().time
        self._ends = _NEVER
        self._is_late = False
        self._cancelled_before = 0

    async def of(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await the work; raise TimedOut if it had to be cut off."""
        self._ends = self._time() + self._limit
        try:
            return await coroutine
        except asyncio.CancelledError:
            # As in asyncio.timeout: a cancellation that came from elsewhere too must go on.
            if self._is_late and self._task.cancelling() == self._cancelled_before + 1:
                raise errors.TimedOut(f"took longer than {self._limit:g} seconds") from None
            raise
        finally:
            self._ends = _NEVER
            if self._is_late:
                self._is_late = False
                self._task.uncancel()

    def look(self, now: float) -> None:
        """Cut the work off if its time is over."""
        if self._ends <= now and not self._is_late:
            self._is_late = True
            self._cancelled_before = self._task.cancelling()
            self._task.cancel()


class Deadline:
    """Cuts off each work that takes longer than this."""

    def __init__(self, limit: timedelta) -> None:
        self._limit = limit.total_seconds()
        self._seats: set[Seat] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def seat(self) -> Iterator[Seat]:
        """Watch over the works of the current task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task to cut off")
        seat = Seat(task, self._limit)
        self._seats.add(seat)
        if self._timer is None:
            self._look()
        try:
            yield seat
        finally:
            self._seats.discard(seat)
            if not self._seats and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for seat in self._seats:
            seat.look(now)
        self._timer = loop.call_later(self._limit / _LOOKS, self._look)
