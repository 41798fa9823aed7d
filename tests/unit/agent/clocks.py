"""A host's clock that somebody sets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.base import virtual_time
from bramley.base.clock import Clock


@dataclass
class SetClock:
    """Virtual time, but the time of day is ahead or behind by what somebody has set it."""

    inner: Clock
    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return self.inner.now() + self.ahead

    def monotonic(self) -> float:
        return self.inner.monotonic()

    def jump(self, by: timedelta) -> None:
        self.ahead += by


def a_clock() -> SetClock:
    return SetClock(virtual_time.clock())
