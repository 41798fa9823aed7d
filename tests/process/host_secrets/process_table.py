"""The process table, polled: the command lines and environments that other users of this machine may read.

It includes the processes of simulated Macs, which run on this machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_POLL_SECONDS = 0.03


@dataclass
class ProcessTable:
    """All command lines that were found at any time, and the environments of their processes."""

    command_lines: set[bytes] = field(default_factory=set)
    environments: set[bytes] = field(default_factory=set)
    _running: dict[str, bytes] = field(default_factory=dict)

    def poll(self) -> None:
        before, self._running = self._running, {}
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - polling must be fast
            command_line = self._running[name] = _read(f"/proc/{name}/cmdline")
            if before.get(name) != command_line:
                self.command_lines.add(command_line)
                self.environments.add(_read(f"/proc/{name}/environ"))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        # The process has exited, or belongs to another user.
        return b""


def without_variable(environment: bytes, name: str) -> bytes:
    """Return an environment without one variable."""
    prefix = f"{name}=".encode()
    return b"\0".join(each for each in environment.split(b"\0") if not each.startswith(prefix))


@contextmanager
def recorded() -> Iterator[ProcessTable]:
    """Poll the table while this context is active."""
    table, ended = ProcessTable(), threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            table.poll()

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        yield table
    finally:
        ended.set()
        poller.join()
