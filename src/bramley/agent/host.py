"""The interface to the operating system of the host; `platform` implements it for macOS and Linux."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Space:
    """The size of a volume in bytes; `free` is what an unprivileged user may allocate."""

    total: int
    free: int

    @property
    def free_share(self) -> float:
        """Return the free share between 0 and 1; a volume of unknown size counts as free."""
        return self.free / self.total if self.total > 0 else 1.0


@dataclass(frozen=True, slots=True)
class HostProcess:
    """Any process of this machine whose arguments are readable; `tart_home` is set for a `tart run` whose environment is, too."""

    pid: int
    argv: tuple[str, ...]
    tart_home: str = ""


@dataclass(frozen=True, slots=True)
class SystemInfo:
    """What identifies this machine and its operating system, as in a Node's status; a field is empty if it is unknown."""

    os_image: str = ""
    kernel_version: str = ""
    machine_id: str = ""
    system_uuid: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time and memory of a process and its descendants."""

    cpu: timedelta
    resident_bytes: int


class Host(Protocol):
    """Reads facts about this machine and locks folders; every call is fast and starts no process.

    Errors: OSError if a system call fails.
    """

    def boot_id(self) -> str:
        """Return an id that changes with each boot."""
        ...

    def system_info(self) -> SystemInfo:
        """Return what identifies this machine; does not fail."""
        ...

    def is_locked(self, path: Path) -> bool:
        """Return whether any process holds a lock on the file that keeps tart from acquiring its own."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds a POSIX lock on the file, without acquiring it; tart holds one while a VM runs.

        None also if the system does not know the process: a lock of `flock` belongs to an open file.
        """
        ...

    def lock_folder(self, folder: Path) -> Callable[[], None] | None:
        """Acquire the `flock` of a folder and return a function that releases it; it also ends with this process.

        None if another process holds it, or if there is no such folder. tart locks its staging folders in this way.
        """
        ...

    def space(self, path: Path) -> Space:
        """Return the size of the volume that contains this path, which need not exist yet."""
        ...

    def allocated(self, folder: Path) -> int:
        """Return the allocated bytes of the files in a folder; blocks that it shares with clones are included."""
        ...

    def guest_processes(self) -> list[HostProcess]:
        """Return all processes that run a VM: `tart run`, also of other programs, and those of the Virtualization framework."""
        ...

    def processes(self) -> list[HostProcess]:
        """Return all processes of this machine whose arguments are readable."""
        ...

    def ancestors(self, pid: int) -> list[int]:
        """Return a process, its parent, and so on; empty if the process does not exist."""
        ...

    def usage(self, pid: int) -> Usage | None:
        """Return the usage of a process, or None if it does not exist."""
        ...

    def address(self) -> str | None:
        """Return the first IPv4 address that is reachable: up, no loopback, no link-local, no `bridge*` or `vmnet*`."""
        ...
