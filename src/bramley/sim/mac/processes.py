"""The processes of a simulated Mac: a table of tasks that die as processes do.

`kill` takes effect before it returns: the process is off the table, what it held is free, and not one more line of it runs.
A process leaves nothing to its parent but its exit code, and its children go on as orphans unless somebody kills them too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
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


@dataclass(slots=True)
class Call:
    """What a program was started with; `out` and `err` take whole lines."""

    argv: Sequence[str]
    out: Callable[[str], None]
    err: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    as_root: bool = False


Program = Callable[[Process, Call], Coroutine[Any, Any, int]]


Inode = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Line:
    """Who holds one file, and who waits for it."""

    descriptor: int
    holder: Process
    waiting: deque[tuple[Process, asyncio.Future[None]]] = field(default_factory=deque)


class Locks:
    """One kind of lock over all files of one machine."""

    def __init__(self) -> None:
        self._lines: dict[Inode, _Line] = {}
        # Under which name a process took it; by now the file may be called otherwise.
        self._taken: dict[tuple[int, str], Inode] = {}

    def holder(self, path: str) -> Process | None:
        """Return who holds the file; nobody if it does not exist."""
        try:
            line = self._lines.get(_inode(path))
        except FileNotFoundError:
            return None
        return line.holder if line else None

    def take(self, path: str, process: Process) -> bool:
        """Take the lock if it is free or the process has it already; tell whether it has it now."""
        inode = _inode(path)
        line = self._lines.get(inode)
        if line is None:
            self._lines[inode] = _Line(os.open(path, os.O_RDONLY), process)
            self._note(path, inode, process)
            return True
        return line.holder is process

    async def wait(self, path: str, process: Process) -> None:
        """Take the lock after all that came before."""
        if self.take(path, process):
            return
        inode = _inode(path)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines[inode].waiting.append((process, turn))
        self._note(path, inode, process)
        try:
            await turn
        except asyncio.CancelledError:
            self._let_go(inode, process)
            raise

    def release(self, path: str, process: Process) -> None:
        """Give the lock to the next in line, if this process has it."""
        inode = self._taken.pop((process.pid, path), None)
        if inode is not None:
            self._let_go(inode, process)

    def hand_over(self, path: str, giver: Process, taker: Process) -> None:
        """Let another process hold the lock from now on, as a child does that inherits the open file."""
        inode = self._taken.pop((giver.pid, path))
        self._lines[inode].holder = taker
        self._note(path, inode, taker)

    def _note(self, path: str, inode: Inode, process: Process) -> None:
        self._taken[process.pid, path] = inode
        process.leaving.append(lambda: self.release(path, process))

    def _let_go(self, inode: Inode, process: Process) -> None:
        line = self._lines.get(inode)
        if line is None:
            return
        line.waiting = deque(place for place in line.waiting if place[0] is not process)
        if line.holder is not process:
            return
        if line.waiting:
            line.holder, turn = line.waiting.popleft()
            turn.set_result(None)
        else:
            del self._lines[inode]
            os.close(line.descriptor)


def _inode(path: str) -> Inode:
    found = os.stat(path)  # noqa: PTH116 - the model's paths are plain text
    return found.st_dev, found.st_ino
