"""The data folder: private to its owner, and used by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from bramley.base.errors import BadConfiguration

DATABASE = "bramley.db"
LOCK = "lock"


class InUse(BadConfiguration):
    """Another process holds the folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(
            f"the data folder {folder} is in use by process {holder}; "
            "stop that process, or choose another folder with --data-dir"
        )
        self.holder = holder


class FolderLock:
    """Holds the data folder for this process until it is released, or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the next process in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def claim(folder: Path) -> FolderLock:
    """Make the folder if need be, close it to others and lock it, or say why that cannot be."""
    try:
        _make_private(folder)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadConfiguration(
            f"the data folder {folder} cannot be used: {error.strerror}; "
            "give this user write access to it, or choose another one with --data-dir"
        ) from error
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        _lock(descriptor, folder)
        undo.pop_all()
    return FolderLock(descriptor)


def make_private_file(path: Path) -> None:
    """Make sure that a file is there and that only its owner can read it; the name itself is durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_private(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
        sync_folder(folder.parent)
    elif folder.stat().st_mode & 0o077:
        _close_to_others(folder)


def _close_to_others(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    if names and not names & {DATABASE, LOCK}:
        raise BadConfiguration(
            f"the data folder {folder} is open to other users and holds other files; choose an empty "
            "folder with --data-dir, or close this one with chmod 700"
        )
    folder.chmod(0o700)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        # flock and not a record lock: those vanish when any descriptor of the file is closed.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        raise InUse(folder, holder or "unknown") from None
    with contextlib.suppress(OSError):  # a full disk must not keep a reader out
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
