"""The values of an explanation, also its JSON, and durations as text."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all values."""


class PodNote(_Value, frozen=True, kw_only=True):
    """What a Pod does, since when, and what happens next."""

    name: str
    state: str
    node: str = ""
    image: str = ""
    since: datetime | None = None
    next: str = ""


class HostNote(_Value, frozen=True, kw_only=True):
    """Whether a host takes Pods and how many it has place for, and the state of an image on it."""

    name: str
    state: str
    image: str = ""
    slots: int = 0
    free: int = 0


class Problem(_Value, frozen=True, kw_only=True):
    """A condition that needs attention."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None = None


class EventNote(_Value, frozen=True, kw_only=True):
    """A recent event."""

    reason: str
    message: str
    type: str = "Normal"
    last_at: datetime | None = None


class Explanation(_Value, frozen=True, kw_only=True):
    """The explanation of one object."""

    subject: str
    state: str
    summary: str
    since: datetime | None = None
    waits_for: tuple[str, ...] = ()
    next: str = ""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    pods: tuple[PodNote, ...] = ()
    hosts: tuple[HostNote, ...] = ()
    events: tuple[EventNote, ...] = ()


def age(since: datetime | None, now: datetime) -> str:
    """Return the time since a moment, such as 12 s, 3 min, 2 h 5 min or 4 d; empty if the moment is not known."""
    return "" if since is None else length(now - since)


def length(duration: timedelta) -> str:
    """Return a duration as text with at most two units."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < 2 * _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min"
    if seconds < _DAY:
        minutes = seconds % _HOUR // _MINUTE
        return f"{seconds // _HOUR} h {minutes} min" if minutes else f"{seconds // _HOUR} h"
    return f"{seconds // _DAY} d"
