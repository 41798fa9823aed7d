"""Keys that are due later: one timer for all of them, and for each key only its earliest time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from bramley.base.clock import Clock

T = TypeVar("T", bound=Hashable)

# Timers may fire a hair early; what is due within this many seconds counts as due.
_NEARLY = 0.001


class Delays(Generic[T]):
    """Calls `due` with each key when its time has come."""

    def __init__(self, clock: Clock, due: Callable[[T], None]) -> None:
        self._clock = clock
        self._due = due
        self._when: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._when)

    def add(self, key: T, when: float) -> None:
        """Set the key's time, unless an earlier one is set already."""
        known = self._when.get(key)
        if known is not None and known <= when:
            return
        self._when[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        if self._heap[0][2] == key:
            self._arm()

    def clear(self) -> None:
        """Forget every key."""
        self._when.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            wait = max(0.0, self._heap[0][0] - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._fire)

    def _fire(self) -> None:
        self._timer = None
        horizon = self._clock.monotonic() + _NEARLY
        while self._heap and self._heap[0][0] <= horizon:
            when, _, key = heapq.heappop(self._heap)
            # An entry whose key got an earlier time since then has been served or will be.
            if self._when.get(key) == when:
                del self._when[key]
                self._due(key)
        self._arm()
