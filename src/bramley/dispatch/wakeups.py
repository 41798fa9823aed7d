"""Wake waiting polls when jobs are queued: one poll per job, the longest waiting first, and before those that look already.

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

    __slots__ = ("_event", "is_waiting")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        # Otherwise it looks for a job or hands one out.
        self.is_waiting = False

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
        self.is_waiting = True
        try:
            await self._event.wait()
        finally:
            self.is_waiting = False


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
        looking = None
        for waiter in self._waiters.get(pool, ()):
            if waiter.is_woken:
                continue
            if waiter.is_waiting:
                waiter.wake()
                return
            looking = looking or waiter
        # It looks again when it is done. A hand-out may take seconds, so this is only for a job that no other poll can get.
        if looking is not None:
            looking.wake()

    def wake_all(self) -> None:
        """Wake every poll, because wake-ups may have been lost."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()
