"""The seam to the machine itself: what only the operating system can tell. `platform` has the sides for macOS and Linux."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Space:
    """Room on a volume, in bytes; `free` is what an ordinary user may take."""

    total: int
    free: int

    @property
    def free_share(self) -> float:
        """Return the free share between 0 and 1; a volume of unknown size counts as free."""
        return self.free / self.total if self.total > 0 else 1.0


@dataclass(frozen=True, slots=True)
class GuestProcess:
    """A process that holds a VM: `tart run`, or what the framework started for it."""

    pid: int
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostProcess:
    """Any process of this machine whose arguments can be seen."""

    pid: int
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and its descendants have taken so far."""

    cpu: timedelta
    resident_bytes: int


class Host(Protocol):
    """Tells facts about this machine; every call is quick and spawns nothing.

    Errors: OSError, where the system does not answer.
    """

    def boot_id(self) -> str:
        """Return a text that changes with each boot."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds a POSIX lock on the file, without taking it: tart's sign of a running VM."""
        ...

    def space(self, path: Path) -> Space:
        """Return the room on the volume of this path."""
        ...

    def guest_processes(self) -> list[GuestProcess]:
        """Return all processes that hold a VM, whoever started them."""
        ...

    def processes(self) -> list[HostProcess]:
        """Return all processes of this machine with their arguments, as far as they can be seen; whoever started them."""
        ...

    def usage(self, pid: int) -> Usage | None:
        """Return what a process has used, or None when it is gone."""
        ...

    def address(self) -> str | None:
        """Return the first IPv4 address that others can reach: up, no loopback, no link-local, no `bridge*` or `vmnet*`."""
        ...
