"""Atomic writes of small files: a crash leaves either the old or the new content."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

SUFFIX = ".tmp"
# Only macOS has it: there a plain fsync stops at the drive's own cache.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a private file under a temporary name, sync it, rename it and sync the folder."""
    draft = path.with_name(path.name + SUFFIX)
    try:
        _write(draft, content, durable=durable)
        # Only after the sync: a rename may reach the disk before the content, and a crash would leave an empty file.
        draft.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    if durable:
        # The rename itself is durable only once the folder is synced.
        sync_folder(path.parent)


def remove(path: Path, *, durable: bool = True) -> None:
    """Remove a file durably; succeeds if it does not exist."""
    path.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, content: bytes, *, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0) as file:
        # An unbuffered write may be short on a disk that is almost full.
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        if durable:
            _sync(file.fileno())


def _sync(handle: int) -> None:
    if _FULL_SYNC is not None:
        # Not every volume supports it; the others get a plain fsync.
        with contextlib.suppress(OSError):
            fcntl.fcntl(handle, _FULL_SYNC)
            return
    os.fsync(handle)
