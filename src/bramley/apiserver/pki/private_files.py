"""Files that hold secrets: readable by their owner only, and replaced atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bramley.base.errors import BadConfiguration


def write(path: Path, content: bytes) -> None:
    """Replace a file that only its owner may read; a crash leaves the old one or the new one."""
    with _as_bad_configuration(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _replaced(path) as (out, _):
            out.write(content)


def write_volatile(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, without fsync: a crash may lose it."""
    with _as_bad_configuration(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)


@contextlib.contextmanager
def replace(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """Yield a new private file and its temporary path; after the block it replaces the file at `path`, durably."""
    with _as_bad_configuration(path), _replaced(path) as (out, temporary_path):
        yield out, temporary_path


def check_writable(path: Path) -> None:
    """Raise BadConfiguration if the file cannot be written."""
    with _as_bad_configuration(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        Path(temporary).unlink()


def read(path: Path) -> bytes | None:
    """Return a file's content, or None if it does not exist."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadConfiguration(
            f"{path} cannot be read: {error.strerror}; give this user read access to it"
        ) from error


@contextlib.contextmanager
def _as_bad_configuration(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadConfiguration(
            f"{path} cannot be written: {error.strerror}; give this user write access, or choose another place"
        ) from error


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    # mkstemp creates the file with mode 0600, so the content is never readable by others.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with contextlib.ExitStack() as undo:
        undo.callback(Path(temporary).unlink, missing_ok=True)
        with os.fdopen(descriptor, "wb") as out:
            yield out, Path(temporary)
            out.flush()
            # Before the rename: otherwise a power loss could leave the new name with no content.
            os.fsync(out.fileno())
        Path(temporary).replace(path)
        undo.pop_all()
    # The rename itself is durable only once the folder is synced.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
