"""A lock that many tasks hold together, or one task alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class SharedLock:
    """A lock for readers, which share it, and writers, which do not.

    A task that waits to hold it alone does not delay those that share it: a holder that hangs would otherwise block all of them.
    """

    def __init__(self) -> None:
        self._shared = 0
        self._is_exclusive = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_held(self) -> bool:
        """Return whether any task holds the lock."""
        return self._is_exclusive or self._shared > 0

    async def acquire(self, *, shared: bool) -> None:
        """Acquire the lock."""
        while self._is_exclusive or (self._shared > 0 and not shared):
            await self._wait_for_release()
        if shared:
            self._shared += 1
        else:
            self._is_exclusive = True

    def release(self, *, shared: bool) -> None:
        """Release the lock as it was acquired."""
        if shared:
            self._shared -= 1
        else:
            self._is_exclusive = False
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with others."""
        await self.acquire(shared=True)
        try:
            yield
        finally:
            self.release(shared=True)

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock alone."""
        await self.acquire(shared=False)
        try:
            yield
        finally:
            self.release(shared=False)

    async def _wait_for_release(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            self._waiting.remove(waiter)
