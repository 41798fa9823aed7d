"""Time as a parameter: whoever needs it takes a `Clock`, so that tests can own it.

Sleeping is left to asyncio, whose loop tells the time that passes; see `virtual_time` for the loop of the tests.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day, and a time that never jumps."""

    def now(self) -> datetime:
        """Return the time of day, in UTC and aware of it."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow; good for durations, meaningless as a date."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """Return the machine's time of day in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()
