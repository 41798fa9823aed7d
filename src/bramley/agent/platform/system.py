"""What both systems answer alike, and what only real processes make us ask: whether one is still the one it was."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bramley.agent.host import GuestProcess, Host, HostProcess, Space


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group; it may be gone, which macOS tells as a lack of permission."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


# The service of macOS's framework: one process for each guest, and no child of tart.
GUEST_SERVICE = "com.apple.Virtualization.VirtualMachine"
_TART = "tart"
_RUN = "run"
# Programs that run another one named on their command line: tart's wrapper is a script, and so is a simulated tart.
_INTERPRETERS = ("sh", "bash", "dash", "zsh", "python")


def may_hold_vm(line: bytes) -> bool:
    """Tell by a bare command line whether the process is worth a closer look."""
    return _TART.encode() in line or GUEST_SERVICE.encode() in line


def among(processes: Iterable[HostProcess]) -> list[GuestProcess]:
    """Return those that hold a VM, without the interpreter that some of them are run by."""
    told = ((each.pid, without_interpreter(each.argv)) for each in processes)
    return [GuestProcess(pid, argv) for pid, argv in told if holds_vm(argv)]


def holds_vm(argv: Sequence[str]) -> bool:
    """Tell whether a program with this command line holds a VM."""
    program = argv[0].rpartition("/")[2] if argv else ""
    return program == GUEST_SERVICE or (program == _TART and argv[1:2] == (_RUN,))


def without_interpreter(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command line of what an interpreter runs; nothing if that is a text instead of a script."""
    if not argv or not argv[0].rpartition("/")[2].startswith(_INTERPRETERS):
        return tuple(argv)
    words = argv[1:]
    while words and words[0].startswith("-"):
        if words[0] == "-c":
            return ()
        words = words[1:]
    return tuple(words)


class System(Host, Protocol):
    """A real machine."""

    def began(self, pid: int) -> str | None:
        """Return when the process began, as a supervisor writes it down; None if there is none, or it only waits to be reaped."""
        ...

    def is_same(self, pid: int, began: str) -> bool:
        """Tell whether the process of this number is still the one that began then, and no later one; False if it has ended."""
        ...


def space(path: Path) -> Space:
    """Return the room on the volume of a path, or of the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    told = os.statvfs(path)
    return Space(total=told.f_blocks * told.f_frsize, free=told.f_bavail * told.f_frsize)


def descendants(root: int, parents: Mapping[int, int]) -> list[int]:
    """Return a process and all below it, by who is whose parent."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(each for each in children.get(pid, ()) if each not in found)
    return found
