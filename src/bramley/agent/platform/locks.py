"""Who holds the POSIX lock of a file: `F_GETLK` asks without taking it, over a struct that each system lays out its own way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FlockLayout:
    """How a system lays out `struct flock`, and the numbers of its lock types and of the question."""

    format: str
    fields: tuple[str, ...]
    get: int
    read: int
    unlocked: int

    def question(self) -> bytes:
        """Return the struct that asks who stands in the way of a read lock on the whole file."""
        values = {"type": self.read, "whence": os.SEEK_SET, "start": 0, "length": 0, "pid": 0}
        return struct.pack(self.format, *(values[field] for field in self.fields))

    def holder(self, answer: bytes) -> int | None:
        """Return the process that holds a lock in the way, or None."""
        told = dict(zip(self.fields, struct.unpack(self.format, answer), strict=True))
        return None if told["type"] == self.unlocked else int(told["pid"])


# 64-bit systems both; the padding is the compiler's.
LINUX = FlockLayout(
    "=hh4xqqi4x", ("type", "whence", "start", "length", "pid"), get=5, read=0, unlocked=2
)
DARWIN = FlockLayout(
    "=qqihh", ("start", "length", "pid", "type", "whence"), get=7, read=1, unlocked=2
)


def holder(path: Path, layout: FlockLayout) -> int | None:
    """Return the process that holds a lock on the file; None if nobody does, or there is no such file."""
    try:
        # tart opens it for writing, and so do we; nothing is written.
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with contextlib.closing(os.fdopen(handle, "rb+", buffering=0)) as file:
        return layout.holder(fcntl.fcntl(file.fileno(), layout.get, layout.question()))
