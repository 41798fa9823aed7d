"""Wake waiting polls when jobs are queued: one poll per job, the longest waiting first.

A poll registers before it looks for a job, so a job that is queued in between is not missed. Without a wake-up a poll still looks
again at its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterator


class Waiter:
    """One waiting poll."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_woken(self) -> bool:
        """Return whether a job was queued since the last `reset`."""
        return self._event.is_set()

    def wake(self) -> None:
        """Let the poll look for a job."""
        self._event.set()

    def reset(self) -> None:
        """Forget the wake-up; call this before looking for a job."""
        self._event.clear()

    async def wait(self) -> None:
        """Wait until the poll is woken; the caller sets the deadline."""
        await self._event.wait()


class Wakeups:
    """The waiting polls of this process, by pool."""

    def __init__(self) -> None:
        self._waiters: dict[str, OrderedDict[Waiter, None]] = {}

    @contextlib.contextmanager
    def waiting(self, pool: str) -> Iterator[Waiter]:
        """Register a poll inside the block; its unused wake-up goes to the next poll."""
        waiter = Waiter()
        waiters = self._waiters.setdefault(pool, OrderedDict())
        waiters[waiter] = None
        try:
            yield waiter
        finally:
            del waiters[waiter]
            if not waiters:
                self._waiters.pop(pool, None)
            elif waiter.is_woken:
                self.wake(pool)

    def wake(self, pool: str) -> None:
        """Wake the longest waiting poll of a pool that is not woken yet."""
        for waiter in self._waiters.get(pool, ()):
            if not waiter.is_woken:
                waiter.wake()
                return

    def wake_all(self) -> None:
        """Wake every poll, because wake-ups may have been lost."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()
