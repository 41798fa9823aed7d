"""One deadline for many short works, with one timer for all: most end long before, and a timer for each would cost more than they do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from bramley.base import errors

T = TypeVar("T")

# The timer looks this often while one deadline passes, so works are cut off at most so much later.
_LOOKS = 16


class _Work:
    """A work that runs in a task of its own for as long as it runs."""

    __slots__ = ("cancelling", "ends", "is_late", "task")

    def __init__(self, task: asyncio.Task[Any], ends: float) -> None:
        self.task = task
        self.ends = ends
        self.cancelling = task.cancelling()
        self.is_late = False

    def cut_off(self) -> None:
        self.is_late = True
        self.task.cancel()


class Deadline:
    """Cuts off each work that takes longer than this."""

    def __init__(self, limit: timedelta) -> None:
        self._limit = limit.total_seconds()
        self._running: dict[asyncio.Task[Any], _Work] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def of(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await the work; raise TimedOut if it had to be cut off. A task awaits one work at a time."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task to cut off")
        loop = asyncio.get_running_loop()
        work = self._running[task] = _Work(task, loop.time() + self._limit)
        if self._timer is None:
            self._timer = loop.call_later(self._limit / _LOOKS, self._look)
        try:
            return await coroutine
        except asyncio.CancelledError:
            # As in asyncio.timeout: a cancellation that came from elsewhere too must go on.
            if work.is_late and task.uncancel() <= work.cancelling:
                raise errors.TimedOut(f"took longer than {self._limit:g} seconds") from None
            raise
        finally:
            del self._running[task]

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for work in self._running.values():
            if work.ends <= now and not work.is_late:
                work.cut_off()
        self._timer = loop.call_later(self._limit / _LOOKS, self._look) if self._running else None
