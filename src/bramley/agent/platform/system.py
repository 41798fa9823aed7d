"""The interface of a real machine, with what macOS and Linux have in common: signals, guest processes, volumes."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from bramley.agent.host import Host, HostProcess, Space
from bramley.agent.platform import interfaces, locks


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if it still exists; macOS reports one that does not as PermissionError."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


# The service of the Virtualization framework: one process per guest, which is not a child of tart.
GUEST_SERVICE = "com.apple.Virtualization.VirtualMachine"
# The unit of `st_blocks`, whatever the volume's block size is.
_BLOCK_SIZE = 512
_TART = "tart"
_RUN = "run"
# Interpreters: tart's wrapper is a script, and so is a simulated tart.
_INTERPRETERS = ("sh", "bash", "dash", "zsh", "python")


def may_run_vm(command_line: bytes) -> bool:
    """Return whether a raw command line may belong to a process that runs a VM."""
    return _TART.encode() in command_line or GUEST_SERVICE.encode() in command_line


def guest_processes_of(processes: Iterable[HostProcess]) -> list[HostProcess]:
    """Return the processes that run a VM, without the interpreter on their command lines."""
    candidates = ((each.pid, without_interpreter(each.argv)) for each in processes)
    return [HostProcess(pid, argv) for pid, argv in candidates if runs_vm(argv)]


def runs_vm(argv: Sequence[str]) -> bool:
    """Return whether a program with this command line runs a VM."""
    program = argv[0].rpartition("/")[2] if argv else ""
    return program == GUEST_SERVICE or (program == _TART and argv[1:2] == (_RUN,))


def without_interpreter(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command line without the interpreter; empty if it runs `-c` code instead of a script."""
    if not argv or not argv[0].rpartition("/")[2].startswith(_INTERPRETERS):
        return tuple(argv)
    rest = argv[1:]
    while rest and rest[0].startswith("-"):
        if rest[0] == "-c":
            return ()
        rest = rest[1:]
    return tuple(rest)


class System(Host, Protocol):
    """A real machine, which also identifies processes across reused pids."""

    def start_time(self, pid: int) -> str | None:
        """Return when the process started, in the supervisor's format; None if it does not exist or is a zombie."""
        ...

    def is_same_process(self, pid: int, started: str) -> bool:
        """Return whether this pid still is the process that started then; False if it has ended."""
        ...


class PosixHost(abc.ABC):
    """The part of `System` that macOS and Linux have in common, up to the layout of structs."""

    flock: ClassVar[locks.FlockLayout]
    ioctl: ClassVar[interfaces.IoctlRequests]

    @abc.abstractmethod
    def parent(self, pid: int) -> int | None:
        """Return the parent of a process; None if the process does not exist."""

    def ancestors(self, pid: int) -> list[int]:
        """Return a process, its parent, and so on."""
        found: list[int] = []
        parent = self.parent(pid)
        # A pid may be reused between two reads, so that the parents form a cycle.
        while parent is not None and pid not in found:
            found.append(pid)
            pid, parent = parent, self.parent(parent)
        return found

    def is_locked(self, path: Path) -> bool:
        """Return whether any lock blocks a POSIX lock on the file."""
        return locks.holder(path, self.flock) is not None

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds the POSIX lock of a file; None if an open file holds the lock."""
        holder = locks.holder(path, self.flock)
        # Never as a pid: a signal to -1 would end every process.
        return None if holder is None or holder <= 0 else holder

    def lock_folder(self, folder: Path) -> Callable[[], None] | None:
        """Acquire the `flock` of a folder, without waiting."""
        return locks.lock_folder(folder)

    def space(self, path: Path) -> Space:
        """Return the size of the volume of a path, or of its nearest existing parent."""
        while not path.exists() and path != path.parent:
            path = path.parent
        stats = os.statvfs(path)
        return Space(total=stats.f_blocks * stats.f_frsize, free=stats.f_bavail * stats.f_frsize)

    def allocated(self, folder: Path) -> int:
        """Return the allocated bytes of the files in a folder, links not followed."""
        return sum(each.lstat().st_blocks * _BLOCK_SIZE for each in folder.iterdir())

    def address(self) -> str | None:
        """Return the first reachable address."""
        return interfaces.first_reachable(interfaces.all_interfaces(self.ioctl))


def descendants(root: int, parents: Mapping[int, int]) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    pids = [root]
    for pid in pids:
        pids.extend(each for each in children.get(pid, ()) if each not in pids)
    return pids
