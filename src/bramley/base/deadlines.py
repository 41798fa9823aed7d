"""Deadlines for many tasks with one timer: most tasks finish long before theirs, and a timer for each would cost more.

A task can only be stopped by cancelling it. As `asyncio.timeout` does, a tracked task remembers how often it had been
cancelled before, so that a cancellation from elsewhere is not swallowed together with ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from bramley.base import errors

T = TypeVar("T")

# The timer fires this often within one deadline, so a task is cancelled at most that much later.
_CHECKS_PER_DEADLINE = 16
_NEVER = float("inf")


class TrackedTask:
    """A task with a deadline, which may be set and cleared again and again."""

    __slots__ = ("_cancelled_before", "_task", "deadline", "is_late")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._cancelled_before = 0
        self.deadline = _NEVER
        self.is_late = False

    def cancel(self) -> None:
        """Cancel the task, once."""
        if not self.is_late:
            self.is_late = True
            self._cancelled_before = self._task.cancelling()
            self._task.cancel()

    def finish(self) -> bool:
        """Clear the deadline and undo our cancellation; return whether ours was the only one."""
        self.deadline = _NEVER
        if not self.is_late:
            return False
        self.is_late = False
        return self._task.uncancel() <= self._cancelled_before


class DeadlineWatcher:
    """Checks all tracked tasks periodically and cancels those past their deadline."""

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._tasks: set[TrackedTask] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, task: TrackedTask) -> None:
        """Check a task from now on; it has no deadline before `start`."""
        self._tasks.add(task)
        if self._timer is None:
            self._check()

    def start(self, task: TrackedTask) -> None:
        """Set the task's deadline, counted from now."""
        task.deadline = asyncio.get_running_loop().time() + self.limit_seconds

    def remove(self, task: TrackedTask) -> None:
        """Check a task no longer; the timer ends by itself when no task is left."""
        self._tasks.discard(task)

    def stop_if_idle(self) -> None:
        """Cancel the timer at once when no task is left."""
        if not self._tasks and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task in tuple(self._tasks):
            # Strictly later: inner code with the same limit and its own timer fires first and names what was late.
            if task.deadline < now:
                task.cancel()
        pause = self.limit_seconds / _CHECKS_PER_DEADLINE
        self._timer = loop.call_later(pause, self._check) if self._tasks else None


class DeadlineScope:
    """Runs coroutines in the current task one after the other, each within the deadline."""

    def __init__(self, task: TrackedTask, watcher: DeadlineWatcher) -> None:
        self._task = task
        self._watcher = watcher

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await the coroutine; raise TimedOut if it exceeded the deadline."""
        self._watcher.start(self._task)
        try:
            return await coroutine
        except asyncio.CancelledError:
            if self._task.finish():
                limit = self._watcher.limit_seconds
                raise errors.TimedOut(f"took longer than {limit:g} seconds") from None
            raise
        finally:
            self._task.finish()


class Deadline:
    """Cancels whatever takes longer than the limit."""

    def __init__(self, limit: timedelta) -> None:
        self._watcher = DeadlineWatcher(limit.total_seconds())

    @contextlib.contextmanager
    def scope(self) -> Iterator[DeadlineScope]:
        """Watch the current task inside the block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        tracked = TrackedTask(task)
        self._watcher.add(tracked)
        try:
            yield DeadlineScope(tracked, self._watcher)
        finally:
            self._watcher.remove(tracked)
            self._watcher.stop_if_idle()
