"""The holder of a POSIX lock: `F_GETLK` returns it without acquiring the lock; `struct flock` differs between systems.

A lock that belongs to an open file instead of a process has the pid -1: on macOS every `flock`, on Linux an open file description
lock, but not an `flock`. Such a lock blocks tart's own all the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FlockLayout:
    """The layout of `struct flock` on a system, and the values of F_GETLK, F_RDLCK and F_UNLCK."""

    format: str
    fields: tuple[str, ...]
    get: int
    read: int
    unlocked: int

    def request(self) -> bytes:
        """Return the struct that requests the lock that blocks a read lock on the whole file."""
        values = {"type": self.read, "whence": os.SEEK_SET, "start": 0, "length": 0, "pid": 0}
        return struct.pack(self.format, *(values[field] for field in self.fields))

    def parse_holder(self, response: bytes) -> int | None:
        """Return the process that holds the blocking lock, -1 if an open file holds it, or None if no lock blocks."""
        flock = dict(zip(self.fields, struct.unpack(self.format, response), strict=True))
        return None if flock["type"] == self.unlocked else int(flock["pid"])


# Both for 64-bit systems; the padding is the compiler's.
LINUX = FlockLayout(
    "=hh4xqqi4x", ("type", "whence", "start", "length", "pid"), get=5, read=0, unlocked=2
)
DARWIN = FlockLayout(
    "=qqihh", ("start", "length", "pid", "type", "whence"), get=7, read=1, unlocked=2
)


def holder(path: Path, layout: FlockLayout) -> int | None:
    """Return the process that holds a lock on the file; None if it is not locked or does not exist. See `parse_holder`."""
    try:
        # Opened for writing as tart does; nothing is written.
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    # Closing a descriptor drops all POSIX locks of its process on the file; the agent holds none on tart's files.
    with contextlib.closing(os.fdopen(handle, "rb+", buffering=0)) as file:
        return layout.parse_holder(fcntl.fcntl(file.fileno(), layout.get, layout.request()))


def lock_folder(folder: Path) -> Callable[[], None] | None:
    """Acquire the `flock` of a folder without waiting; return a function that releases it, or None."""
    try:
        # No program that the agent starts inherits it: a VM would hold the lock for as long as it runs.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The folder may have been removed or replaced before the lock was held.
        if os.path.samestat(os.fstat(handle), os.lstat(folder)):
            return lambda: os.close(handle)
    except OSError:
        pass
    os.close(handle)
    return None
