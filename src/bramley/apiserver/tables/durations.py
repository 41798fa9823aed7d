"""How long something lasted, in the few figures that people read: `63s`, `5m3s`, `2d4h`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

UNKNOWN = "<unknown>"
INVALID = "<invalid>"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
# Up to this many seconds the larger unit is shown with so much of the smaller one.
_STEPS = (
    (10 * _MINUTE, _MINUTE, _SECOND := 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
_LETTERS = {_SECOND: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}


def human(seconds: float) -> str:
    """Return a duration as kubectl's users know it."""
    whole = int(seconds)
    # Clocks of two machines differ a little; what began a second ahead of now began now.
    if whole < -1:
        return INVALID
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    for limit, unit, smaller in _STEPS:
        if whole < limit:
            return _in_units(whole, unit, smaller)
    return f"{whole // _YEAR}y"


def _in_units(whole: int, unit: int, smaller: int) -> str:
    rest = whole % unit // smaller if smaller else 0
    tail = f"{rest}{_LETTERS[smaller]}" if rest else ""
    return f"{whole // unit}{_LETTERS[unit]}{tail}"


def parsed(text: Any) -> datetime | None:
    """Return a time that an object carries, or None for none and for what is no time."""
    if not isinstance(text, str) or not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def since(text: Any, now: datetime) -> str:
    """Return how long ago a time was."""
    time = parsed(text)
    return UNKNOWN if time is None else human((now - time).total_seconds())
