"""One pull under watch: it is ended when it stalls or is no longer wanted, and halted and let go to keep a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from bramley.agent.images.pacing import Pace
from bramley.agent.images.progress import Progress
from bramley.base import errors
from bramley.base.clock import Clock

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
