"""A clock that does not advance, for programs that print the time."""

from __future__ import annotations

from datetime import UTC, datetime

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class FixedClock:
    """Always the same time."""

    def now(self) -> datetime:
        """Return that time."""
        return NOW

    def monotonic(self) -> float:
        """Return zero."""
        return 0.0
