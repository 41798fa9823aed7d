"""A host clock whose time of day a test sets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.base.clock import Clock
from tests import virtual_time


@dataclass
class SetClock:
    """Virtual time with a time of day that `jump` moves."""

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
