"""Runs blocking functions off the event loop, each within a deadline, in a bounded number of threads per scope.

The threads are daemons and nothing joins them: one that hangs, as in a name lookup, holds its place in its scope until it ends,
but neither the loop, nor other scopes, nor the exit of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from bramley.base import errors

T = TypeVar("T")


class Runner(Protocol):
    """Runs blocking functions: `Threads`, or in place where nothing blocks, as under virtual time."""

    async def run(
        self, scope: str, function: Callable[[], T], *, deadline: timedelta, about: str
    ) -> T:
        """Return what the function returns, or raise its error; TimedOut after the deadline."""
        ...


class Threads:
    """At most `per_scope` threads for each scope, such as a zone."""

    def __init__(self, per_scope: int = 4) -> None:
        self._per_scope = per_scope
        self._places: dict[str, asyncio.Semaphore] = {}

    async def run(
        self, scope: str, function: Callable[[], T], *, deadline: timedelta, about: str
    ) -> T:
        """Return what the function returns, or raise its error; TimedOut after the deadline, which includes waiting."""
        places = self._places.setdefault(scope, asyncio.Semaphore(self._per_scope))
        call: _Call[T] = _Call(function, places)
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                await places.acquire()
                threading.Thread(target=call.run, name=f"provider {scope}", daemon=True).start()
                await call.ended.wait()
        except TimeoutError:
            seconds = deadline.total_seconds()
            raise errors.TimedOut(f"{about}: no response within {seconds:g} s") from None
        return call.result()


class _Call(Generic[T]):
    """A function in a thread; its place is given back when it ends, however late."""

    def __init__(self, function: Callable[[], T], places: asyncio.Semaphore) -> None:
        self._function = function
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._captured = errors.Captured()
        self._results: list[T] = []
        self.ended = asyncio.Event()

    def run(self) -> None:
        try:
            with self._captured:
                self._results.append(self._function())
        finally:
            # The loop may be closed by now.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end)

    def result(self) -> T:
        if self._captured.error is not None:
            raise self._captured.error
        return self._results[0]

    def _end(self) -> None:
        self._places.release()
        self.ended.set()
