"""Files that hold secrets: readable by their owner only, and replaced whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bramley.base.errors import BadConfiguration


def write(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old one or the new one, never less, and nobody else can read it."""
    with _told(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _replacing(path) as (out, _):
            out.write(content)


def write_soon(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read and that may as well be lost: it is not waited for until it is durable."""
    with _told(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """Give a new private file and its place for now; it takes the path's place when the block ends well, whole and durable."""
    with _told(path), _replacing(path) as (out, place):
        yield out, place


def check_place(path: Path) -> None:
    """Raise if the file could not be written, before anything is done that relies on it."""
    with _told(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        Path(temporary).unlink()


def read(path: Path) -> bytes | None:
    """Return a file's content, or None when there is no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadConfiguration(
            f"{path} cannot be read: {error.strerror}; give this user read access to it"
        ) from error


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadConfiguration(
            f"{path} cannot be written: {error.strerror}; give this user write access, or choose another place"
        ) from error


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    # mkstemp makes the file with mode 0600, so the content is never readable by others, not even for a moment.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with contextlib.ExitStack() as undo:
        undo.callback(Path(temporary).unlink, missing_ok=True)
        with os.fdopen(descriptor, "wb") as out:
            yield out, Path(temporary)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(path)
        undo.pop_all()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
