"""The host's clocks, and the age of recorded dates across jumps of the time of day.

Administrators and time servers set the time of day. Its offset to the monotonic clock is recorded whenever it has jumped, and
stored on disk for the next agent, so that the age of a date that was written before a jump is still known. Without a record the
time of day is used; if several ages are possible, the smallest one is.
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

# A time server that slews the clock corrects less than this during the life of a VM.
JUMP_SECONDS = 1.0
# Dates are recorded in whole seconds.
_TOLERANCE = 2.0
_MAX_OFFSETS = 64


class ClockOffset(NamedTuple):
    """The offset of the time of day to the monotonic clock, from this monotonic second on."""

    since: float
    seconds: float


class _Stored(msgspec.Struct, frozen=True):
    boot_id: str
    offsets: list[ClockOffset] = msgspec.field(name="marks")


class HostClock:
    """The clocks of one host in one boot; implements `Clock`."""

    def __init__(self, clock: Clock, file: Path, *, boot_id: Callable[[], str]) -> None:
        self._clock = clock
        self._file = file
        self._boot_id = _read_boot_id(boot_id)
        self._offsets = self._load()
        self._record_jump()

    def now(self) -> datetime:
        """Return the time of day, which may be wrong."""
        self._record_jump()
        return self._clock.now()

    def monotonic(self) -> float:
        """Return seconds that only increase."""
        return self._clock.monotonic()

    def age(self, moment: datetime) -> timedelta:
        """Return how long ago this host recorded a date: the smallest possible age, and zero for a date in the future."""
        self._record_jump()
        now, date = self._clock.monotonic(), moment.timestamp()
        ages = [now - second for second in self._seconds(date)]
        seconds = min(ages, default=self._clock.now().timestamp() - date)
        return timedelta(seconds=max(seconds, 0.0))

    def rebased(self, moment: datetime) -> datetime:
        """Return a date converted to the current time of day."""
        return self._clock.now() - self.age(moment)

    def _seconds(self, date: float) -> Iterator[float]:
        """Yield each monotonic second at which the time of day was this; there are several after it was set back."""
        ends = [offset.since for offset in self._offsets[1:]] + [self._clock.monotonic()]
        for index, (offset, end) in enumerate(zip(self._offsets, ends, strict=True)):
            second = date - offset.seconds
            # The first offset also applies to the time before it.
            begins = offset.since - _TOLERANCE if index else second
            if begins <= second <= end + _TOLERANCE:
                yield second

    def _record_jump(self) -> None:
        now = self._clock.monotonic()
        seconds = self._clock.now().timestamp() - now
        if self._offsets:
            jump = seconds - self._offsets[-1].seconds
            if abs(jump) < JUMP_SECONDS:
                return
            logger.warning("Time of day has jumped", seconds=jump)
        self._offsets = [*self._offsets, ClockOffset(now, seconds)][-_MAX_OFFSETS:]
        # Saved at once: after a crash the next agent could not date what was recorded before the jump.
        self._save()

    def _load(self) -> list[ClockOffset]:
        """Return the offsets that earlier agents recorded in this boot."""
        try:
            stored = msgspec.json.decode(self._file.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError):
            return []
        is_this_boot = bool(self._boot_id) and stored.boot_id == self._boot_id
        is_past = all(offset.since <= self._clock.monotonic() for offset in stored.offsets)
        return stored.offsets if is_this_boot and is_past else []

    def _save(self) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = msgspec.json.encode(_Stored(self._boot_id, self._offsets))
            atomic_file.replace(self._file, content, durable=False)
        except OSError as error:
            logger.warning("Clock offsets not stored", file=str(self._file), error=str(error))


def _read_boot_id(boot_id: Callable[[], str]) -> str:
    try:
        return boot_id()
    except OSError:
        return ""
