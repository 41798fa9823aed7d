"""An event loop with virtual time: timers fire in order, without real waiting.

A day of a fleet passes as fast as its callbacks run, and a seed decides ties, so the same seed gives the same run.
Sockets, processes and threads are refused, because their timing is real. A scenario in which all tasks wait forever raises
`Hung`, which lists the tasks and where they wait.
"""

from __future__ import annotations

import asyncio
import heapq
import io
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
A_YEAR = timedelta(days=365)


class Hung(RuntimeError):
    """Every task waits and no timer is left, or the scenario ran past its limit of virtual time."""


class RefusedUnderVirtualTime(RuntimeError):
    """A socket, a process or a thread was requested, whose timing is real."""


class VirtualClock:
    """The clock of a virtual-time loop: the date is an epoch plus the loop's seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: datetime = EPOCH) -> None:
        self._loop = loop
        self._epoch = epoch

    def now(self) -> datetime:
        """Return the epoch plus the virtual seconds passed."""
        return self._epoch + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        """Return the virtual seconds passed."""
        return self._loop.time()


class _SeededTimer(asyncio.TimerHandle):
    """A timer with a tie-breaker among timers of the same time."""

    __slots__ = ("tie",)
    tie: float
    _when: float  # asyncio's own, as is its bookkeeping of timers in the heap
    _scheduled: bool

    def __lt__(self, other: object) -> bool:
        # Called for each comparison in the heap, so this must not call anything.
        when, others = self._when, other._when  # type: ignore[attr-defined]
        return self.tie < other.tie if when == others else when < others  # type: ignore[attr-defined,no-any-return]


class _TimeJump:
    """Replaces asyncio's selector: instead of waiting, it advances the loop's time."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            self._loop.report_hang("every task waits and no timer is left")
        if timeout > 0:
            self._loop.jump()
        return []


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """asyncio's event loop with a clock that jumps to the next timer."""

    _scheduled: list[asyncio.TimerHandle]  # asyncio's own heap of timers

    def __init__(self, *, seed: int = 0, limit: timedelta = A_YEAR) -> None:
        super().__init__()
        self._elapsed = 0.0
        self._limit = limit.total_seconds()
        self._ties = random.Random(seed)
        self._selector = _TimeJump(self)
        # Well above the rounding error of a year in seconds, otherwise asyncio would never treat a timer as due.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._elapsed

    def jump(self) -> None:
        """Advance virtual time to the next timer."""
        # Assigned, not added: a sum may round to just before the timer and then never reach it.
        self._elapsed = self._scheduled[0].when()
        if self._elapsed > self._limit:
            self.report_hang(f"the scenario passed its limit of {self._limit:.0f} virtual seconds")

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule like asyncio, but order timers of the same time by the seed."""
        timer = _SeededTimer(when, callback, args, self, context)
        timer.tie = self._ties.random()
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def report_hang(self, why: str) -> NoReturn:
        """Raise Hung with the stack of each task."""
        out = io.StringIO()
        waiting = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        for task in waiting:
            task.print_stack(file=out)
        raise Hung(f"{why}; {len(waiting)} tasks wait at {self._elapsed:.3f} s:\n{out.getvalue()}")

    def run_in_executor(self, *_: object) -> NoReturn:
        """Refuse threads."""
        raise RefusedUnderVirtualTime("threads are refused under virtual time")

    async def create_connection(self, *_: object, **__: object) -> NoReturn:
        """Refuse sockets."""
        raise RefusedUnderVirtualTime("sockets are refused under virtual time")

    create_server = create_connection
    create_datagram_endpoint = create_connection

    async def subprocess_exec(self, *_: object, **__: object) -> NoReturn:
        """Refuse processes."""
        raise RefusedUnderVirtualTime("processes are refused under virtual time")

    subprocess_shell = subprocess_exec

    def _process_events(self, event_list: list[object]) -> None:
        """Do nothing: there are no external events."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no threads that could wake this loop."""


def run(main: Coroutine[Any, Any, T], *, seed: int = 0, limit: timedelta = A_YEAR) -> T:
    """Run a coroutine to its end under virtual time, as `asyncio.run` does under real time."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(seed=seed, limit=limit)) as runner:
        return runner.run(main)


def clock() -> VirtualClock:
    """Return the clock of the virtual-time loop that is running."""
    return VirtualClock(asyncio.get_running_loop())
