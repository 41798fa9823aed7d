"""When a paced pull may run: arithmetic over what it has loaded, nothing else.

Tart knows no limit, so its process is halted and let go; while it is halted the socket's buffer fills and the sender waits.
Tart tells whole percents only, half a gigabyte of a large image. Between two of them the load is estimated from the speed so
far, so that halts stay short and no connection dies of them; each percent that is heard corrects the estimate.
"""

from __future__ import annotations

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
