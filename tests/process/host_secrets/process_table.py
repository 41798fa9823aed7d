"""The process table, looked at again and again: what anybody on this machine may read of everybody's command lines, and of environments.

A simulated Mac's processes are in it, too: they are this machine's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_EVERY_SECONDS = 0.03


@dataclass
class Seen:
    """Every different command line that was there at some look, and the environments of those processes."""

    command_lines: set[bytes] = field(default_factory=set)
    environments: set[bytes] = field(default_factory=set)
    _running: dict[str, bytes] = field(default_factory=dict)

    def look(self) -> None:
        before, self._running = self._running, {}
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - looks must be quick
            words = self._running[name] = _read(f"/proc/{name}/cmdline")
            if before.get(name) != words:
                self.command_lines.add(words)
                self.environments.add(_read(f"/proc/{name}/environ"))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        # It has ended, or is not ours to read.
        return b""


@contextmanager
def watching() -> Iterator[Seen]:
    """Look at the table for as long as this is entered."""
    seen, ended = Seen(), threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY_SECONDS):
            seen.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()
