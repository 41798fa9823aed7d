"""Subscriptions of watchers: a bounded buffer of committed changes per watcher.

A watcher that is too slow loses its buffer and gets an error; it never delays writers and never misses a change silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Self, TypeAlias

from bramley.apiserver.store.errors import Closed, Overflowed
from bramley.apiserver.store.records import Change

ChangeFilter: TypeAlias = Callable[[Change], bool]
"""Returns whether a watcher gets a change; it runs for every watcher at every commit, so it must be fast."""


class Subscription:
    """One watcher's view of one resource, from a revision on; use it as a context manager.

    Guarantees: changes arrive once each and in order of revision, and everything up to `revision` has been delivered.
    Assumes one consumer. Raises Overflowed after a change had to be dropped, and Closed after the store was closed.
    """

    def __init__(
        self,
        accepts: ChangeFilter | None,
        *,
        since: int,
        limit_bytes: int,
        current_revision: Callable[[], int],
        unsubscribe: Callable[[Subscription], object],
    ) -> None:
        self._accepts = accepts
        self._limit_bytes = limit_bytes
        self._current_revision = current_revision
        self._unsubscribe = unsubscribe
        self._buffer: list[Change] = []
        self._buffer_bytes = 0
        self._delivered = since
        self._error: Overflowed | Closed | None = None
        self._wake = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def revision(self) -> int:
        """Return the revision up to which every change has been delivered."""
        return self._delivered if self._buffer or self._error else self._current_revision()

    async def next(self, timeout: float | None) -> list[Change]:  # noqa: ASYNC109 - a quiet end, not an error
        """Return all buffered changes, or wait for the next ones; an empty list after the timeout."""
        if not self._buffer and self._error is None:
            await self._wait(timeout)
        if self._error is not None:
            raise self._error
        changes, self._buffer, self._buffer_bytes = self._buffer, [], 0
        # Past commits that the filter rejected, too; no commit can be published between these statements.
        self._delivered = self._current_revision()
        self._wake.clear()
        return changes

    def offer(self, changes: Sequence[Change], *, size_bytes: int) -> None:
        """Buffer the changes of one commit group, or end the subscription if they do not fit."""
        if self._accepts is not None:
            changes = [change for change in changes if self._accepts(change)]
            size_bytes = total_bytes(changes)
        if not changes or self._error is not None:
            return
        # A group larger than the bound must still be deliverable to a watcher that keeps up.
        if self._buffer and self._buffer_bytes + size_bytes > self._limit_bytes:
            self.end(Overflowed(f"a watcher is more than {self._limit_bytes} bytes behind"))
            return
        self._buffer.extend(changes)
        self._buffer_bytes += size_bytes
        self._wake.set()

    def end(self, error: Overflowed | Closed) -> None:
        """Drop the buffer and raise the error at the watcher."""
        self._buffer = []
        self._buffer_bytes = 0
        self._error = self._error or error
        self._wake.set()

    def close(self) -> None:
        """Unsubscribe."""
        self._unsubscribe(self)

    async def _wait(self, seconds: float | None) -> None:
        if seconds is None:
            await self._wake.wait()
            return
        # Every event of every watcher passes here, and asyncio.timeout costs twice as much as a timer.
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()


def total_bytes(changes: Sequence[Change]) -> int:
    """Return how many bytes of objects the changes carry."""
    return sum(len(change.record.body) for change in changes)
