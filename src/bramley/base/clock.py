"""Time as a parameter: components get a `Clock`, so that tests can control it.

Sleeping is left to asyncio; the tests have an event loop with virtual time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The time of day, and a monotonic time."""

    def now(self) -> datetime:
        """Return the time of day in UTC, timezone-aware."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds, for measuring durations."""
        ...


class SystemClock:
    """The system's clocks."""

    def now(self) -> datetime:
        """Return the system time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the system's monotonic seconds."""
        return time.monotonic()
