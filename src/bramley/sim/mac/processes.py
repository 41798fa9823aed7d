"""The processes of a simulated Mac: a table of tasks that die as processes do.

`kill` takes effect before it returns: the process is off the table, what it held is free, and not one more line of it runs.
A process leaves nothing to its parent but its exit code, and its children go on as orphans unless somebody kills them too.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bramley.base.clock import Clock

LAUNCHD = 1
_FIRST_PID = 400

Main = Callable[["Process"], Coroutine[Any, Any, int]]


@dataclass(slots=True, eq=False)
class Process:
    """One process; `ended` has its exit code, or minus the signal that killed it."""

    pid: int
    argv: tuple[str, ...]
    parent: int
    group: int
    started_at: datetime
    ended: asyncio.Future[int]
    # Called once when it is gone, in this order: whoever held something for it lets go.
    leaving: list[Callable[[], None]] = field(default_factory=list)
    # Signals that it handles; those it has not looked at yet; and whether it stands where one would wake it.
    catches: frozenset[signal.Signals] = frozenset()
    caught: list[signal.Signals] = field(default_factory=list)
    is_interruptible: bool = False
    # It is stopped while this is not set.
    gate: asyncio.Event | None = None
    task: asyncio.Task[None] | None = None

    @property
    def lives(self) -> bool:
        """Tell whether it is still there."""
        return not self.ended.done()


class Table:
    """All processes of one machine."""

    def __init__(self, group: asyncio.TaskGroup, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._next = _FIRST_PID
        self._processes: dict[int, Process] = {}

    def spawn(
        self,
        argv: tuple[str, ...],
        main: Main,
        *,
        parent: int = LAUNCHD,
        group: int | None = None,
        catches: frozenset[signal.Signals] = frozenset(),
    ) -> Process:
        """Start a process, in a group of its own unless one is given; it runs from the next turn of the loop on."""
        process = self._new(argv, parent, group)
        process.catches = catches
        process.task = self._group.create_task(self._run(process, main), name=f"pid {process.pid}")
        return process

    def find(self, pid: int) -> Process | None:
        """Return a process that lives."""
        return self._processes.get(pid)

    def living(self) -> list[Process]:
        """Return all processes, the oldest first."""
        return list(self._processes.values())

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; one that is not caught ends the process at once, and a dead one hears nothing."""
        process = self._processes.get(pid)
        if process is None:
            return
        if number not in process.catches:
            self._end(process, -number)
            _cancel(process)
            return
        process.caught.append(number)
        if process.is_interruptible:
            process.is_interruptible = False
            _cancel(process)

    def kill_group(self, group: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to every process of a group."""
        for process in self.living():
            if process.group == group:
                self.kill(process.pid, number)

    def clear(self) -> None:
        """End everything, as a reboot does."""
        for process in self.living():
            self.kill(process.pid)

    def _new(self, argv: tuple[str, ...], parent: int, group: int | None) -> Process:
        pid, self._next = self._next, self._next + 1
        ended = asyncio.get_running_loop().create_future()
        process = Process(
            pid, argv, parent, pid if group is None else group, self._clock.now(), ended
        )
        self._processes[pid] = process
        return process

    async def _run(self, process: Process, main: Main) -> None:
        try:
            code = await main(process)
        except asyncio.CancelledError:
            if process.lives:
                # Nobody killed it: the world it lives in is being taken down.
                self._end(process, -signal.SIGKILL)
                raise
            return
        self._end(process, code)

    def _end(self, process: Process, code: int) -> None:
        if not process.lives:
            return
        process.ended.set_result(code)
        del self._processes[process.pid]
        for child in self._processes.values():
            if child.parent == process.pid:
                child.parent = LAUNCHD
        for let_go in process.leaving:
            let_go()
        process.leaving.clear()


def _cancel(process: Process) -> None:
    if process.task is not None:
        process.task.cancel()
