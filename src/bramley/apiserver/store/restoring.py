"""Putting restored files in the place of those of a data folder, so that a cut at any moment leaves the old or the new.

Everything new stands ready in one folder inside before a note is written; from that note on the new state holds. Whoever
opens the folder next finishes what the note says, and every step of that may be done twice. What was there before is
moved aside, never deleted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from bramley.apiserver.store import folder as folders
from bramley.base import log
from bramley.base.errors import BadConfiguration

logger = log.get(__name__)

STAGE = "restore.new"
NOTE = "restore.json"
# The log of a database belongs to it: left behind, SQLite would play it into the new one.
_WITH_DATABASE = (f"{folders.DATABASE}-wal", f"{folders.DATABASE}-shm")


class _Note(msgspec.Struct, frozen=True):
    """What is to be done: first everything of `names` goes to `aside`, then the stage's content takes its place."""

    aside: str
    names: tuple[str, ...]
    step: Literal["aside", "install"] = "aside"


def stage(folder: Path) -> Path:
    """Return a new empty folder for what is to be restored; what a restore that was cut off left there is gone."""
    place = folder / STAGE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    return place


def install(folder: Path, aside: str, *, replaced: Iterable[str]) -> None:
    """Let the stage's content hold from now on; what is `replaced` or of the same name goes to the folder `aside`."""
    names = dict.fromkeys((*replaced, *_WITH_DATABASE, *_names(folder / STAGE)))
    for place in (folder / STAGE).rglob("*"):
        folders.sync_folder(place) if place.is_dir() else folders.sync_file(place)
    folders.sync_folder(folder / STAGE)
    _keep(folder, _Note(aside, tuple(names)))
    finish(folder)


def finish(folder: Path) -> None:
    """Finish a restore that was cut off, if there was one."""
    note = _read(folder)
    if note is None:
        return
    if note.step == "aside":
        _move(note.names, folder, folder / note.aside)
        note = msgspec.structs.replace(note, step="install")
        _keep(folder, note)
    _move(_names(folder / STAGE), folder / STAGE, folder)
    (folder / NOTE).unlink()
    folders.sync_folder(folder)
    with contextlib.suppress(OSError):
        (folder / STAGE).rmdir()
    logger.info("Restored the data folder", folder=folder, before=folder / note.aside)


def _names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            (source / name).rename(target / name)
    for place in (source, target, target.parent):
        folders.sync_folder(place)


def _keep(folder: Path, note: _Note) -> None:
    fresh = folder / f"{NOTE}.new"
    folders.make_private_file(fresh)
    with fresh.open("wb") as out:
        out.write(msgspec.json.encode(note))
        out.flush()
        os.fsync(out.fileno())
    fresh.rename(folder / NOTE)
    folders.sync_folder(folder)


def _read(folder: Path) -> _Note | None:
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=_Note)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise BadConfiguration(
            f"{folder / NOTE} cannot be read ({error}); restore the folder again with --force"
        ) from error
