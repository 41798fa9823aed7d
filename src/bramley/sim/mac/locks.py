"""Locks on files, in memory: exclusive, with a line of those who wait, and a holder that can be asked for.

A lock belongs to the file and not to its name, so a folder that is renamed keeps it and one that is made anew has none. Each
lock keeps its file open for that, as the process that holds it would.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from dataclasses import dataclass, field

from bramley.sim.mac.processes import Process

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
