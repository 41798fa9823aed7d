"""A clock that stands still, for programs that tell the time."""

from __future__ import annotations

from datetime import UTC, datetime

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Stopped:
    """Shows one moment for ever."""

    def now(self) -> datetime:
        """Return that moment."""
        return NOW

    def monotonic(self) -> float:
        """Return no time at all."""
        return 0.0
