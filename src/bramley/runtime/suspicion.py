"""When to read a whole list because something may have been missed: soon the first time, then ever more rarely."""

from __future__ import annotations

import random

from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

# Timers may fire a hair early; what is due within this many seconds counts as due.
_NEARLY = 0.001


class Suspicion:
    """A doubt about the cache, and the time at which a list shall end it."""

    def __init__(self, clock: Clock, rng: random.Random, backoff: Backoff) -> None:
        self._clock = clock
        self._rng = rng
        self._backoff = backoff
        self._raised = 0
        self._raised_at = 0.0
        self._due_at: float | None = None

    def arise(self) -> None:
        """Have a list read soon, unless one is due already; long after the last doubt it is the first again."""
        if self._due_at is not None:
            return
        now = self._clock.monotonic()
        if now - self._raised_at > 2 * self._backoff.maximum.total_seconds():
            self._raised = 0
        self._raised += 1
        self._raised_at = now
        self._due_at = now + self._backoff.delay(self._raised, self._rng).total_seconds()

    def end(self) -> None:
        """Forget the doubt, because a list is being read."""
        self._due_at = None

    def left(self, most: float) -> float:
        """Return the seconds until a list is due, or `most` if that is less or there is no doubt."""
        if self._due_at is None:
            return most
        return min(most, max(0.0, self._due_at - self._clock.monotonic()))

    def is_due(self) -> bool:
        """Tell whether it is time to read a list."""
        return self._due_at is not None and self._due_at <= self._clock.monotonic() + _NEARLY
