"""Monitors one pull: cancels it when it stalls or must stop, and pauses and resumes it to keep a rate limit.

Tart has no rate limit, so its process is paused (SIGSTOP) and resumed; while it is paused the socket buffer fills and the sender
waits. Tart prints whole percents only, half a gigabyte of a large image. Between two of them the load is estimated from the speed
so far, so that pauses stay short and no connection times out; each percent that is printed corrects the estimate.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from bramley.base import errors
from bramley.base.clock import Clock

_PERCENT = re.compile(r"^\s*(\d{1,3})%")
_SIZE = re.compile(r"pulling disk \(([0-9.]+)\s*([KMGT]?)B compressed\)", re.IGNORECASE)
# Tart prints what it copies from another cached image.
_SKIPPED = re.compile(r"(?:skip|deduplicate)\D*([0-9.]+)\s*([KMGT]?)B", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_QUEUED = "waiting for lock"


@dataclass(slots=True)
class Progress:
    """The progress of one pull, from tart's output; `size` is the download size in bytes, 0 while unknown."""

    percent: int | None = None
    size: int = 0
    lines: int = 0
    is_queued: bool = False
    # Bytes that are not downloaded: they are left from an earlier attempt, or are in another image on this disk.
    skipped: int = 0

    def feed_line(self, line: str) -> None:
        """Parse one line."""
        self.lines += 1
        self.is_queued = line.startswith(_QUEUED)
        if match := _PERCENT.match(line):
            self.percent = min(int(match[1]), 100)
        elif match := _SIZE.search(line):
            self.size = _bytes(match[1], match[2])
        elif match := _SKIPPED.search(line):
            self.skipped += _bytes(match[1], match[2])

    def reset(self) -> None:
        """Start a new attempt; what the failed one downloaded may be skipped."""
        self.skipped = self.loaded
        self.percent, self.size, self.is_queued = None, 0, False

    @property
    def loaded(self) -> int:
        """Return the downloaded bytes, to the last whole percent."""
        return self.size * (self.percent or 0) // 100

    @property
    def step(self) -> int:
        """Return the bytes of one percent: the most that may have been downloaded unreported."""
        return self.size // 100


def _bytes(number: str, unit: str) -> int:
    try:
        return int(float(number) * _UNITS[unit.upper()])
    except (ValueError, OverflowError):
        return 0


# Bytes per second of the fastest connection of a Mac; assumed until the first percent, because a start that is too slow is harmless.
MAX_LINE_SPEED = 125e6
# A pull may be ahead of its limit by this much time.
BURST_SECONDS = 1.0


class Pacer:
    """Computes when a pull is within its rate limit, counted from what it has already `loaded`.

    `credit` is what may be skipped instead of downloaded: chunks of an earlier attempt, or of another image. Such bytes are
    recognized because they arrive faster than any network connection; without credit every byte counts.
    """

    def __init__(self, now: float, *, loaded: int = 0, credit: int = 0) -> None:
        self._began = now
        self._reported = loaded
        self._skipped = loaded
        self._credit = credit
        self._run_seconds = 0.0
        self._run_seconds_at_report = 0.0

    def elapsed(self, seconds: float, *, running: bool) -> None:
        """Account for elapsed time in which the pull ran or was paused."""
        self._run_seconds += seconds if running else 0.0

    def is_within_limit(self, now: float, limit: float, *, loaded: int, step: int) -> bool:
        """Return whether the pull is within its limit; `step` is the most that may be downloaded but unreported."""
        if loaded > self._reported:
            self._update(loaded, step)
        allowed = limit * (now - self._began + BURST_SECONDS)
        return self._estimate(step) <= allowed

    def _update(self, loaded: int, step: int) -> None:
        received = loaded - self._reported
        if received > MAX_LINE_SPEED * (self._run_seconds - self._run_seconds_at_report) + step:
            skipped = min(received, self._credit)
            self._credit -= skipped
            self._skipped += skipped
        self._reported, self._run_seconds_at_report = loaded, self._run_seconds

    def _estimate(self, step: int) -> float:
        unreported = self._run_seconds - self._run_seconds_at_report
        # At most one step can be unreported; without this cap a slow connection would be paused for nothing.
        return self._reported - self._skipped + min(self._speed() * unreported, step)

    def _speed(self) -> float:
        counted = self._reported - self._skipped
        if counted == 0 or self._run_seconds_at_report == 0:
            return MAX_LINE_SPEED
        return counted / self._run_seconds_at_report


_TICK = 1.0
# Short, because a pause lasts at least as long as one tick.
_PACED_TICK = 0.25


class Stalled(errors.Unavailable):
    """A pull made no progress for too long and was killed."""


@dataclass(slots=True, eq=False)
class PullControl:
    """The controls of a pull: `limit` in bytes per second may change at any time, and setting `stop_error` ends the pull."""

    progress: Progress = field(default_factory=Progress)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    limit: float | None = None
    stop_error: errors.BramleyError | None = None
    # Called with every tick; an error that it returns ends the pull.
    stop_reason: Callable[[], errors.BramleyError | None] = lambda: None

    def __post_init__(self) -> None:
        self.gate.set()

    def reset(self) -> None:
        """Start a new attempt."""
        self.progress.reset()
        self.stop_error = None
        self.gate.set()


class PullMonitor:
    """Monitors one attempt of a pull."""

    def __init__(
        self,
        control: PullControl,
        *,
        clock: Clock,
        stall: timedelta,
        home: Path,
        shortage: Callable[[], errors.BramleyError | None] = lambda: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._control = control
        self._shortage = shortage
        self._on_tick = on_tick
        self._clock = clock
        self._stall = stall
        self._home = home
        self._pace: Pacer | None = None
        self._pace_limit: float | None = None
        self._last_check = clock.monotonic()
        self._idle_seconds = 0.0
        self._last_progress = (-1, -1)

    async def run(self, pull: Coroutine[Any, Any, None]) -> None:
        """Await the pull; raise its error, or the reason for which it was ended."""
        failure: errors.BramleyError | None = None
        async with asyncio.TaskGroup() as group:
            try:
                async with asyncio.timeout(None) as scope:
                    monitor = group.create_task(self._supervise(scope))
                    await pull
            except TimeoutError:
                failure = self._control.stop_error
            except errors.BramleyError as error:
                failure = error
            monitor.cancel()
        if failure is not None:
            raise failure

    async def _supervise(self, scope: asyncio.Timeout) -> None:
        while self._control.stop_error is None:
            await asyncio.sleep(_TICK if self._control.limit is None else _PACED_TICK)
            self._check()
        scope.reschedule(asyncio.get_running_loop().time())

    def _check(self) -> None:
        control, now = self._control, self._clock.monotonic()
        elapsed, self._last_check = now - self._last_check, now
        self._update_idle_time(elapsed)
        self._on_tick()
        if control.stop_error is None:
            control.stop_error = control.stop_reason() or self._shortage()
        if control.stop_error is None and self._idle_seconds >= self._stall.total_seconds():
            reason = f"no progress for {self._stall.total_seconds():g} s"
            percent = control.progress.percent or 0
            control.stop_error = Stalled(f"the pull stalled at {percent} %: {reason}")
        self._apply_limit(elapsed, now)

    def _update_idle_time(self, elapsed: float) -> None:
        """Count the time without progress; a pause, or the time in tart's own queue, is not a stall."""
        progress = (self._control.progress.lines, _staged_bytes(self._home / "tmp"))
        if progress != self._last_progress or self._control.progress.is_queued:
            self._last_progress, self._idle_seconds = progress, 0.0
        elif self._control.gate.is_set():
            self._idle_seconds += elapsed

    def _apply_limit(self, elapsed: float, now: float) -> None:
        control, progress = self._control, self._control.progress
        if control.limit is None or not progress.size:
            self._pace = None
            control.gate.set()
            return
        if self._pace is None or self._pace_limit != control.limit:
            # Bytes from before a change of the limit are not counted: a pause of minutes would lose the connection.
            self._pace = Pacer(now, loaded=progress.loaded, credit=progress.skipped)
            self._pace_limit = control.limit
        self._pace.elapsed(elapsed, running=control.gate.is_set())
        if self._pace.is_within_limit(
            now, control.limit, loaded=progress.loaded, step=progress.step
        ):
            control.gate.set()
        else:
            control.gate.clear()


def _staged_bytes(folder: Path) -> int:
    """Return the size of all partial downloads of this host, in blocks; files may appear and vanish meanwhile."""
    try:
        return sum(each.stat().st_blocks for each in folder.glob("*/*"))
    except OSError:
        return 0
