"""The folders of the agent, and the exclusive lock in the state folder that ensures one agent per host."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from bramley.agent.settings import Folders
from bramley.api.names import flags
from bramley.api.names.flags import Flag
from bramley.base import errors

PRIVATE = 0o700
# The log folder is readable by all users; the files in it are private.
OPEN = 0o755


def make_folders(folders: Folders) -> None:
    """Create the missing folders."""
    _create_folder(folders.state, PRIVATE, flags.STATE_DIR)
    _create_folder(folders.user_data, PRIVATE, flags.USERDATA_DIR)
    _create_folder(folders.vm_logs, OPEN, flags.VM_LOG_DIR)


def _create_folder(folder: Path, mode: int, flag: Flag) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        raise errors.BadConfiguration(
            f"{flag.name} {folder}: {error.strerror}; set a folder that this user can write to"
        ) from error


class AnotherAgent(errors.Refused):
    """Another agent runs on this host; two agents would run each Pod twice."""


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of this host; AnotherAgent if another process does. The lock ends with the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        _acquire(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
        raise AnotherAgent(
            f"another agent (process {holder}) uses {path.parent}; stop it, or set another folder with {flags.STATE_DIR.name}"
        ) from error
    # Only under the lock: the file names the process that holds it.
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
