"""The data folder: private to its owner, and used by one process at a time."""

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

STAGE = "restore.new"
NOTE = "restore.json"
# The log of a database belongs to it: left behind, SQLite would play it into the new one.
_WITH_DATABASE = (f"{DATABASE}-wal", f"{DATABASE}-shm")


class _RestoreNote(msgspec.Struct, frozen=True):
    """What is to be done: first everything of `names` goes to `aside`, then the stage's content takes its place."""

    aside: str
    names: tuple[str, ...]
    step: Literal["aside", "install"] = "aside"


def stage_restore(folder: Path) -> Path:
    """Return a new empty folder for what is to be restored; what a restore that was cut off left there is gone."""
    place = folder / STAGE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    return place


def install_restore(folder: Path, aside: str, *, replaced: Iterable[str]) -> None:
    """Let the stage's content hold from now on; what is `replaced` or of the same name goes to the folder `aside`."""
    names = dict.fromkeys((*replaced, *_WITH_DATABASE, *_names(folder / STAGE)))
    for place in (folder / STAGE).rglob("*"):
        sync_folder(place) if place.is_dir() else sync_file(place)
    sync_folder(folder / STAGE)
    _write_note(folder, _RestoreNote(aside, tuple(names)))
    finish_restore(folder)


def finish_restore(folder: Path) -> None:
    """Finish a restore that was cut off, if there was one."""
    note = _read_note(folder)
    if note is None:
        return
    if note.step == "aside":
        _move_files(note.names, folder, folder / note.aside)
        note = msgspec.structs.replace(note, step="install")
        _write_note(folder, note)
    _move_files(_names(folder / STAGE), folder / STAGE, folder)
    (folder / NOTE).unlink()
    sync_folder(folder)
    with contextlib.suppress(OSError):
        (folder / STAGE).rmdir()
    logger.info("Restored the data folder", folder=folder, before=folder / note.aside)


def _names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def _move_files(names: Iterable[str], source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            (source / name).rename(target / name)
    for place in (source, target, target.parent):
        sync_folder(place)


def _write_note(folder: Path, note: _RestoreNote) -> None:
    fresh = folder / f"{NOTE}.new"
    make_private_file(fresh)
    with fresh.open("wb") as out:
        out.write(msgspec.json.encode(note))
        out.flush()
        os.fsync(out.fileno())
    fresh.rename(folder / NOTE)
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
