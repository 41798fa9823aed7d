"""One pull under watch: it is ended when it stalls or is no longer wanted, and halted and let go to keep a limit."""

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
# Tart tells what it takes from another image that is cached.
_SPARED = re.compile(r"(?:skip|deduplicate)\D*([0-9.]+)\s*([KMGT]?)B", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_QUEUED = "waiting for lock"


@dataclass(slots=True)
class Progress:
    """What was heard of one pull; `size` is what has to cross the wire, in bytes, 0 while unknown."""

    percent: int | None = None
    size: int = 0
    lines: int = 0
    is_queued: bool = False
    # What need not cross the wire: it came in an attempt before, or is on this disk in another image.
    spared: int = 0

    def hear(self, line: str) -> None:
        """Take in one line."""
        self.lines += 1
        self.is_queued = line.startswith(_QUEUED)
        if match := _PERCENT.match(line):
            self.percent = min(int(match[1]), 100)
        elif match := _SIZE.search(line):
            self.size = _bytes(match[1], match[2])
        elif match := _SPARED.search(line):
            self.spared += _bytes(match[1], match[2])

    def begin_anew(self) -> None:
        """Forget how an attempt that failed went, but for what it may have left."""
        self.spared = self.loaded
        self.percent, self.size, self.is_queued = None, 0, False

    @property
    def loaded(self) -> int:
        """Return the bytes that came, to the last whole percent."""
        return self.size * (self.percent or 0) // 100

    @property
    def step(self) -> int:
        """Return the bytes of one percent, as many as may have come unheard."""
        return self.size // 100


def _bytes(number: str, unit: str) -> int:
    try:
        return int(float(number) * _UNITS[unit.upper()])
    except ValueError:
        return 0


# Until the first percent the line is taken to be as fast as any Mac's: too slow a start is no harm.
FASTEST_LINE = 125e6
# A pull may be ahead of its limit by what it allows in this time.
BURST_SECONDS = 1.0


class Pace:
    """Holds one pull to a number of bytes per second, from what it has `loaded` on.

    `credit` is what may come without crossing the line: chunks of an attempt before, or of another image. Faster than any line
    such bytes come, and by that they are known; without credit every byte counts.
    """

    def __init__(self, now: float, *, loaded: int = 0, credit: int = 0) -> None:
        self._began = now
        self._heard = loaded
        self._free = loaded
        self._credit = credit
        self._run_for = 0.0
        self._run_when_heard = 0.0

    def passed(self, seconds: float, *, running: bool) -> None:
        """Take in that time passed, in which the pull ran or was halted."""
        self._run_for += seconds if running else 0.0

    def may_run(self, now: float, limit: float, *, loaded: int, step: int) -> bool:
        """Tell whether the pull is within its limit; `step` is the most that may have come since `loaded` was told."""
        if loaded > self._heard:
            self._hear(loaded, step)
        allowed = limit * (now - self._began + BURST_SECONDS)
        return self._estimate(step) <= allowed

    def _hear(self, loaded: int, step: int) -> None:
        came = loaded - self._heard
        if came > FASTEST_LINE * (self._run_for - self._run_when_heard) + step:
            spared = min(came, self._credit)
            self._credit -= spared
            self._free += spared
        self._heard, self._run_when_heard = loaded, self._run_for

    def _estimate(self, step: int) -> float:
        unheard = self._run_for - self._run_when_heard
        # More than a step cannot have come unheard; without this cap a slow line would be halted for nothing.
        return self._heard - self._free + min(self._speed() * unheard, step)

    def _speed(self) -> float:
        counted = self._heard - self._free
        if counted == 0 or self._run_when_heard == 0:
            return FASTEST_LINE
        return counted / self._run_when_heard


_TICK = 1.0
# Short, because a halt can be no shorter than what came in one tick.
_PACED_TICK = 0.25


class Stalled(errors.Unavailable):
    """A pull brought nothing for too long and was killed."""


@dataclass(slots=True, eq=False)
class Watched:
    """A pull as others may steer it: `limit` in bytes per second may change or go at any time, `end` ends it."""

    progress: Progress = field(default_factory=Progress)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    limit: float | None = None
    end: errors.BramleyError | None = None
    # Looked at with every tick; what it returns ends the pull.
    objection: Callable[[], errors.BramleyError | None] = lambda: None

    def __post_init__(self) -> None:
        self.gate.set()

    def begin_anew(self) -> None:
        """Forget how the attempt before went."""
        self.progress.begin_anew()
        self.end = None
        self.gate.set()


class Watch:
    """Watches one attempt."""

    def __init__(self, watched: Watched, *, clock: Clock, stall: timedelta, home: Path) -> None:
        self._watched = watched
        self._clock = clock
        self._stall = stall
        self._home = home
        self._pace: Pace | None = None
        self._paced_to: float | None = None
        self._last = clock.monotonic()
        self._quiet = 0.0
        self._seen = (-1, -1)

    async def over(self, pull: Coroutine[Any, Any, None]) -> None:
        """Await the pull; raise what it raises, or the reason for which it was ended."""
        failure: errors.BramleyError | None = None
        async with asyncio.TaskGroup() as group:
            try:
                async with asyncio.timeout(None) as scope:
                    watching = group.create_task(self._until_over(scope))
                    await pull
            except TimeoutError:
                failure = self._watched.end
            except errors.BramleyError as error:
                failure = error
            watching.cancel()
        if failure is not None:
            raise failure

    async def _until_over(self, scope: asyncio.Timeout) -> None:
        while self._watched.end is None:
            await asyncio.sleep(_TICK if self._watched.limit is None else _PACED_TICK)
            self._look()
        scope.reschedule(asyncio.get_running_loop().time())

    def _look(self) -> None:
        watched, now = self._watched, self._clock.monotonic()
        passed, self._last = now - self._last, now
        self._note_quiet(passed)
        if watched.end is None:
            watched.end = watched.objection()
        if watched.end is None and self._quiet >= self._stall.total_seconds():
            told = f"nothing came for {self._stall.total_seconds():g} s"
            watched.end = Stalled(f"the pull stalled at {watched.progress.percent or 0} %: {told}")
        self._keep_pace(passed, now)

    def _note_quiet(self, passed: float) -> None:
        """Count the time without news; time in halt, or in tart's own queue, is nobody's stall."""
        seen = (self._watched.progress.lines, _staged_bytes(self._home / "tmp"))
        if seen != self._seen or self._watched.progress.is_queued:
            self._seen, self._quiet = seen, 0.0
        elif self._watched.gate.is_set():
            self._quiet += passed

    def _keep_pace(self, passed: float, now: float) -> None:
        watched, progress = self._watched, self._watched.progress
        if watched.limit is None or not progress.size:
            self._pace = None
            watched.gate.set()
            return
        if self._pace is None or self._paced_to != watched.limit:
            # What came under another limit is no debt under this one: a halt of minutes would cost the connection.
            self._pace = Pace(now, loaded=progress.loaded, credit=progress.spared)
            self._paced_to = watched.limit
        self._pace.passed(passed, running=watched.gate.is_set())
        if self._pace.may_run(now, watched.limit, loaded=progress.loaded, step=progress.step):
            watched.gate.set()
        else:
            watched.gate.clear()


def _staged_bytes(folder: Path) -> int:
    """Return what the downloads of this host take so far; files may come and go meanwhile."""
    try:
        return sum(each.stat().st_blocks for each in folder.glob("*/*"))
    except OSError:
        return 0
