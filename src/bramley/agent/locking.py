"""One agent per host: an exclusive lock in the state folder, held for as long as the agent runs and gone with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from bramley.api.names import flags
from bramley.base import errors


class AnotherAgent(errors.Refused):
    """Another agent runs on this host; two would run each other's Pods twice."""


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of this host; AnotherAgent if somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        _take(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
        raise AnotherAgent(
            f"another agent (process {holder}) uses {path.parent}; stop that one, or give this one a folder of its own "
            f"with {flags.STATE_DIR.name}"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
