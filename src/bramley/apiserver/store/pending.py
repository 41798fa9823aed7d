"""A change between its decision and the disk, and those who wait for it to get there."""

from __future__ import annotations

import asyncio

from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.records import Change, Record


class Pending:
    """A change on its way to the disk."""

    __slots__ = ("_error", "_settled", "_waiters", "change")

    def __init__(self, change: Change) -> None:
        self.change = change
        self._settled = False
        self._error: StorageUnavailable | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def durable(self) -> Record:
        """Wait until the change is on the disk; raise StorageUnavailable if it never will be."""
        if not self._settled:
            # A future each: cancelling one who waits must not take the result from the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._error:
            # A new one for each who waits: a traceback grows with every raise.
            raise StorageUnavailable(
                str(self._error), cured_by_restart=self._error.cured_by_restart
            ) from self._error
        return self.change.record

    def settle(self, error: StorageUnavailable | None = None) -> None:
        """Let everybody who waits go on, to the record or to the error."""
        self._settled = True
        self._error = error
        for waiter in self._waiters:
            if not waiter.done():  # whoever waited may have gone away
                waiter.set_result(None)
