"""One deadline for all that a worker does, one work after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from bramley.base import errors
from bramley.base.lookout import Lookout, Work

T = TypeVar("T")


class Seat:
    """Lets one task do one work after the other, each within the deadline."""

    def __init__(self, work: Work, lookout: Lookout) -> None:
        self._work = work
        self._lookout = lookout

    async def of(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await the work; raise TimedOut if it had to be cut off."""
        self._lookout.begin(self._work)
        try:
            return await coroutine
        except asyncio.CancelledError:
            if self._work.end():
                limit = self._lookout.limit_seconds
                raise errors.TimedOut(f"took longer than {limit:g} seconds") from None
            raise
        finally:
            self._work.end()


class Deadline:
    """Cuts off each work that takes longer than this."""

    def __init__(self, limit: timedelta) -> None:
        self._lookout = Lookout(limit.total_seconds())

    @contextlib.contextmanager
    def seat(self) -> Iterator[Seat]:
        """Watch over the works of the current task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task to cut off")
        work = Work(task)
        self._lookout.add(work)
        try:
            yield Seat(work, self._lookout)
        finally:
            self._lookout.remove(work)
            self._lookout.rest()
