"""The processes of a simulated Mac, as asyncio tasks in a table, and the locks that they hold on files.

`kill` takes effect before it returns: the process is removed from the table, its locks are released, and no more of its code runs.
Its parent gets only its exit code, and its children continue as orphans.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from bramley.base.clock import Clock

T = TypeVar("T")

LAUNCHD = 1
_FIRST_PID = 400

Main = Callable[["Process"], Coroutine[Any, Any, int]]


@dataclass(slots=True, eq=False)
class Process:
    """One process; `exit_code` is set at its end to its exit code, or minus the signal that killed it."""

    pid: int
    argv: tuple[str, ...]
    parent: int
    group: int
    started_at: datetime
    exit_code: asyncio.Future[int]
    # Called once at its end, in this order; locks are released here.
    on_exit: list[Callable[[], None]] = field(default_factory=list)
    # Signals that it handles; those not handled yet; and whether it waits where a signal interrupts it.
    catches: frozenset[signal.Signals] = frozenset()
    pending_signals: list[signal.Signals] = field(default_factory=list)
    is_interruptible: bool = False
    # The process is stopped (SIGSTOP) while this is not set.
    gate: asyncio.Event | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return not self.exit_code.done()


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
        """Start a process, in a new group unless one is given; it runs from the next iteration of the event loop on."""
        process = self._new(argv, parent, group)
        process.catches = catches
        process.task = self._group.create_task(self._run(process, main), name=f"pid {process.pid}")
        return process

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task of the machine that is no process, such as a request on its network."""
        return self._group.create_task(coroutine)

    def find(self, pid: int) -> Process | None:
        """Return a process that lives."""
        return self._processes.get(pid)

    def living(self) -> list[Process]:
        """Return all processes, the oldest first."""
        return list(self._processes.values())

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; one that is not caught ends the process at once, and a dead process is ignored."""
        process = self._processes.get(pid)
        if process is None:
            return
        if number not in process.catches:
            self._end(process, -number)
            _cancel(process)
            return
        process.pending_signals.append(number)
        if process.is_interruptible:
            process.is_interruptible = False
            _cancel(process)

    def kill_group(self, group: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to every process of a group."""
        for process in self.living():
            if process.group == group:
                self.kill(process.pid, number)

    def clear(self) -> None:
        """Kill all processes, as a reboot does."""
        for process in self.living():
            self.kill(process.pid)

    def _new(self, argv: tuple[str, ...], parent: int, group: int | None) -> Process:
        pid, self._next = self._next, self._next + 1
        exit_code = asyncio.get_running_loop().create_future()
        process = Process(
            pid, argv, parent, pid if group is None else group, self._clock.now(), exit_code
        )
        self._processes[pid] = process
        return process

    async def _run(self, process: Process, main: Main) -> None:
        try:
            code = await main(process)
        except asyncio.CancelledError:
            if process.is_alive:
                # Not killed: the task group is being cancelled.
                self._end(process, -signal.SIGKILL)
                raise
            return
        self._end(process, code)

    def _end(self, process: Process, code: int) -> None:
        if not process.is_alive:
            return
        process.exit_code.set_result(code)
        del self._processes[process.pid]
        for child in self._processes.values():
            if child.parent == process.pid:
                child.parent = LAUNCHD
        for release in process.on_exit:
            release()
        process.on_exit.clear()


def _cancel(process: Process) -> None:
    if process.task is not None:
        process.task.cancel()


@dataclass(slots=True)
class Call:
    """How a program was started; `out` and `err` receive whole lines."""

    argv: Sequence[str]
    out: Callable[[str], None]
    err: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    as_root: bool = False


Program = Callable[[Process, Call], Coroutine[Any, Any, int]]


Inode = tuple[int, int]


@dataclass(slots=True, eq=False)
class _LockQueue:
    """The holder of one file's lock, and those who wait for it."""

    descriptor: int
    holder: Process
    waiting: deque[tuple[Process, asyncio.Future[None]]] = field(default_factory=deque)


class Locks:
    """One kind of lock over all files of one machine."""

    def __init__(self) -> None:
        self._queues: dict[Inode, _LockQueue] = {}
        # The path under which a process acquired it; the file may have been renamed since.
        self._taken: dict[tuple[int, str], Inode] = {}

    def holder(self, path: str) -> Process | None:
        """Return the holder of the file's lock; None if it is free or the file does not exist."""
        try:
            queue = self._queues.get(_inode(path))
        except FileNotFoundError:
            return None
        return queue.holder if queue else None

    def try_acquire(self, path: str, process: Process) -> bool:
        """Acquire the lock if it is free; return whether the process holds it now."""
        inode = _inode(path)
        queue = self._queues.get(inode)
        if queue is None:
            self._queues[inode] = _LockQueue(os.open(path, os.O_RDONLY), process)
            self._record(path, inode, process)
            return True
        return queue.holder is process

    async def acquire(self, path: str, process: Process) -> None:
        """Acquire the lock in order of arrival."""
        if self.try_acquire(path, process):
            return
        inode = _inode(path)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues[inode].waiting.append((process, granted))
        self._record(path, inode, process)
        try:
            await granted
        except asyncio.CancelledError:
            self._release(inode, process)
            raise

    def release(self, path: str, process: Process) -> None:
        """Release the lock to the next waiter, if this process holds it."""
        inode = self._taken.pop((process.pid, path), None)
        if inode is not None:
            self._release(inode, process)

    def transfer(self, path: str, old: Process, new: Process) -> None:
        """Transfer the lock to another process, as when a child inherits the open file."""
        inode = self._taken.pop((old.pid, path))
        self._queues[inode].holder = new
        self._record(path, inode, new)

    def _record(self, path: str, inode: Inode, process: Process) -> None:
        self._taken[process.pid, path] = inode
        process.on_exit.append(lambda: self.release(path, process))

    def _release(self, inode: Inode, process: Process) -> None:
        queue = self._queues.get(inode)
        if queue is None:
            return
        queue.waiting = deque(waiter for waiter in queue.waiting if waiter[0] is not process)
        if queue.holder is not process:
            return
        if queue.waiting:
            queue.holder, granted = queue.waiting.popleft()
            granted.set_result(None)
        else:
            del self._queues[inode]
            os.close(queue.descriptor)


def _inode(path: str) -> Inode:
    stat = os.stat(path)  # noqa: PTH116 - the model's paths are plain text
    return stat.st_dev, stat.st_ino
