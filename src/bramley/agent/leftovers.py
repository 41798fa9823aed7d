"""Programs that an agent left running when it was killed: noted on disk while they run, and ended by the next agent.

Nobody keeps the deadline of a program whose agent is dead, and a tart that hangs holds locks that every later tart waits for.
VMs are no leftovers: they run under supervisors.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from bramley.agent import process_groups
from bramley.agent.platform import System
from bramley.base import log

logger = log.get(__name__)


class Leftovers:
    """Notes of running programs in one folder; a note that cannot be written is done without."""

    def __init__(self, folder: Path, system: System) -> None:
        self._folder = folder
        self._system = system
        self._ours: set[int] = set()

    def note(self, pid: int) -> None:
        """Write down that a program of ours runs."""
        self._ours.add(pid)
        began = self._system.began(pid)
        if began is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._folder / str(pid)).write_text(f"{self._system.boot_id()} {began}")

    def strike(self, pid: int) -> None:
        """Drop the note of a program that has ended."""
        self._ours.discard(pid)
        with contextlib.suppress(OSError):
            (self._folder / str(pid)).unlink(missing_ok=True)

    async def clear(self) -> None:
        """End what an earlier agent left; only for an agent that knows itself to be the only one."""
        with contextlib.suppress(FileNotFoundError):
            notes = [path for path in self._folder.iterdir() if path.name.isdigit()]
            for path in notes:
                if int(path.name) not in self._ours:
                    self._end(path)

    def _end(self, path: Path) -> None:
        pid = int(path.name)
        with contextlib.suppress(OSError):
            boot, _, began = path.read_text().partition(" ")
            is_left = bool(began) and boot == self._system.boot_id()
            if is_left and self._system.began(pid) == began:
                logger.warning("Ending a program that an earlier agent left", pid=pid)
                process_groups.send(pid, signal.SIGKILL)
            path.unlink(missing_ok=True)
