"""The data folder: private to its owner, used by one process at a time, and replaced by a restore in one step.

A restore first writes everything new to a staging folder inside the data folder, then a note; from that note on the new state
holds. The process that opens the folder next finishes what the note describes, and every step of that may run twice. So a
crash at any point leaves either the old or the new state. Replaced files are moved to another folder, never deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from bramley.base import log
from bramley.base.errors import BadConfiguration

logger = log.get(__name__)

DATABASE = "bramley.db"
LOCK = "lock"
STAGE = "restore.new"
NOTE = "restore.json"
# The log of a database belongs to it: left behind, SQLite would play it into the new one.
_WITH_DATABASE = (f"{DATABASE}-wal", f"{DATABASE}-shm")


class _RestoreNote(msgspec.Struct, frozen=True):
    """What is left to do: move all `names` to the folder of replaced files, then move the staged files into their place."""

    replaced_folder: str = msgspec.field(name="aside")
    names: tuple[str, ...]
    step: Literal["aside", "install"] = "aside"


def stage_restore(folder: Path) -> Path:
    """Return a new empty staging folder; files that an interrupted restore left there are deleted."""
    stage = folder / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=0o700)
    return stage


def install_restore(folder: Path, replaced_folder: str, *, replaced: Iterable[str]) -> None:
    """Put the staged files into place; move the `replaced` files, and those of the same names, to `replaced_folder`."""
    names = dict.fromkeys((*replaced, *_WITH_DATABASE, *_names(folder / STAGE)))
    # All staged files must be durable before the note, because from the note on the new state holds.
    for path in (folder / STAGE).rglob("*"):
        sync_folder(path) if path.is_dir() else sync_file(path)
    sync_folder(folder / STAGE)
    _write_note(folder, _RestoreNote(replaced_folder, tuple(names)))
    finish_restore(folder)


def finish_restore(folder: Path) -> None:
    """Finish a restore that was interrupted, if there was one."""
    note = _read_note(folder)
    if note is None:
        return
    if note.step == "aside":
        _move_files(note.names, folder, folder / note.replaced_folder)
        # Noted before the next step: running the first one again would move the new files away.
        note = msgspec.structs.replace(note, step="install")
        _write_note(folder, note)
    _move_files(_names(folder / STAGE), folder / STAGE, folder)
    # Only now, with the files durably in place: without the note nothing would finish the restore.
    (folder / NOTE).unlink()
    sync_folder(folder)
    with contextlib.suppress(OSError):
        (folder / STAGE).rmdir()
    logger.info("Restored the data folder", folder=folder, before=folder / note.replaced_folder)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _move_files(names: Iterable[str], source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        # An interrupted run may have moved it already, and not every replaced file exists.
        with contextlib.suppress(FileNotFoundError):
            (source / name).rename(target / name)
    for folder in (source, target, target.parent):
        sync_folder(folder)


def _write_note(folder: Path, note: _RestoreNote) -> None:
    # Written beside its place, made durable, then renamed: a crash never leaves half a note.
    new = folder / f"{NOTE}.new"
    make_private_file(new)
    with new.open("wb") as out:
        out.write(msgspec.json.encode(note))
        out.flush()
        os.fsync(out.fileno())
    new.rename(folder / NOTE)
    sync_folder(folder)


def _read_note(folder: Path) -> _RestoreNote | None:
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=_RestoreNote)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise BadConfiguration(
            f"{folder / NOTE} cannot be read ({error}); restore the folder again with --force"
        ) from error


class FolderInUse(BadConfiguration):
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
        """Release the lock, so that another process can use the folder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock_folder(folder: Path) -> FolderLock:
    """Create the folder if needed, restrict it to its owner and lock it; raise BadConfiguration if it is unusable."""
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            sync_folder(folder.parent)
        elif folder.stat().st_mode & 0o077:
            _restrict_to_owner(folder)
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
    """Create a file if needed and restrict it to its owner; its name is durable afterwards."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # A file that exists keeps its mode when it is opened.
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    _sync(path, os.O_RDWR)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _restrict_to_owner(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    if names and not names & {DATABASE, LOCK}:
        raise BadConfiguration(
            f"the data folder {folder} is accessible to other users and holds other files; choose an empty "
            "folder with --data-dir, or restrict this one with chmod 700"
        )
    folder.chmod(0o700)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        # flock instead of a record lock, which is lost when any descriptor of the file is closed.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        raise FolderInUse(folder, holder or "unknown") from None
    with contextlib.suppress(OSError):  # the folder must be readable even when the disk is full
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
