"""The host's clocks, and how long ago something was whatever was done to the time of day since.

A time of day is set, by people and by time servers. How far it is ahead of the seconds since the host's start is noted whenever
it has jumped, and kept on disk for the next agent, so that a date which was written before a jump still tells how long ago it
was. Where nobody can tell, the time of day is believed; nothing is ever older than any reading allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from bramley.agent import atomic_file
from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

# What a time server corrects without a jump is less than this in the life of a VM.
JUMP_SECONDS = 1.0
# Dates are told in whole seconds.
_TOLERANCE = 2.0
_MOST_MARKS = 64


class Mark(NamedTuple):
    """From this monotonic second on the time of day was so much ahead of it."""

    since: float
    ahead: float


class _Kept(msgspec.Struct, frozen=True):
    boot_id: str
    marks: list[Mark]


class HostClock:
    """The clocks of one host in one boot; implements `Clock`."""

    def __init__(self, clock: Clock, file: Path, *, boot_id: Callable[[], str]) -> None:
        self._clock = clock
        self._file = file
        self._boot_id = _told(boot_id)
        self._marks = self._kept()
        self._notice()

    def now(self) -> datetime:
        """Return the time of day, right or wrong."""
        self._notice()
        return self._clock.now()

    def monotonic(self) -> float:
        """Return seconds that only ever grow."""
        return self._clock.monotonic()

    def age(self, moment: datetime) -> timedelta:
        """Return how long ago this host wrote a date; the least that is possible, and nothing for what is to come."""
        self._notice()
        now, date = self._clock.monotonic(), moment.timestamp()
        told = [now - second for second in self._seconds(date)]
        seconds = min(told, default=self._clock.now().timestamp() - date)
        return timedelta(seconds=max(seconds, 0.0))

    def rebased(self, moment: datetime) -> datetime:
        """Return a date as the time of day now would have it."""
        return self._clock.now() - self.age(moment)

    def _seconds(self, date: float) -> Iterator[float]:
        """Yield each monotonic second at which the time of day was this; after it was set back there are several."""
        ends = [mark.since for mark in self._marks[1:]] + [self._clock.monotonic()]
        for index, (mark, end) in enumerate(zip(self._marks, ends, strict=True)):
            second = date - mark.ahead
            # What was before the first mark was as it is.
            begins = mark.since - _TOLERANCE if index else second
            if begins <= second <= end + _TOLERANCE:
                yield second

    def _notice(self) -> None:
        second = self._clock.monotonic()
        ahead = self._clock.now().timestamp() - second
        if self._marks and abs(ahead - self._marks[-1].ahead) < JUMP_SECONDS:
            return
        if self._marks:
            logger.warning("The time of day has jumped", seconds=ahead - self._marks[-1].ahead)
        self._marks = [*self._marks, Mark(second, ahead)][-_MOST_MARKS:]
        self._keep()

    def _kept(self) -> list[Mark]:
        """Return what earlier agents of this boot have noted; nothing if it cannot be of this boot."""
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            return []
        is_ours = bool(self._boot_id) and kept.boot_id == self._boot_id
        is_past = all(mark.since <= self._clock.monotonic() for mark in kept.marks)
        return kept.marks if is_ours and is_past else []

    def _keep(self) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept = msgspec.json.encode(_Kept(self._boot_id, self._marks))
            atomic_file.replace(self._file, kept, durable=False)
        except OSError as error:
            logger.warning("Not written down", file=str(self._file), error=str(error))


def _told(boot_id: Callable[[], str]) -> str:
    try:
        return boot_id()
    except OSError:
        return ""
