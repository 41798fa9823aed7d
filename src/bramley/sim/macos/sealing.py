"""Folders that tell whether they are still as they were sealed: the listing of rendered shell, byte for byte, without a shell.

A Mac that was sealed over SSH is looked at in process, and the other way round, so both have to come to the same digest.
"""

from __future__ import annotations

import hashlib
import os
import stat as stats
from collections.abc import Iterator
from pathlib import Path

from bramley.api.names import host


def digest(folder: Path) -> str:
    """Return the SHA-256 of what a folder holds."""
    seal = folder / host.SEAL
    sealed_at = seal.lstat().st_mtime_ns if seal.exists() else None
    lines = sorted(os.fsencode(line) + b"\n" for line in _lines(str(folder), sealed_at))
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _lines(folder: str, sealed_at: int | None) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        yield from _told_of_folder(place, folder)
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in (*files, *links):
            yield from _told(f"{place}/{name}", f".{place[len(folder) :]}/{name}", sealed_at)


def _told_of_folder(place: str, folder: str) -> Iterator[str]:
    if os.lstat(place).st_mode & 0o555 != 0o555:
        yield f"closed .{place[len(folder) :]}"


def _told(path: str, name: str, sealed_at: int | None) -> Iterator[str]:
    seen = os.lstat(path)
    if stats.S_ISLNK(seen.st_mode):
        yield f"link {name}"
        yield f"end {Path(path).readlink()}"
    if not stats.S_ISREG(seen.st_mode):
        return
    if name.rpartition("/")[2] != host.SEAL:
        yield f"size {seen.st_size} {name}"
    if seen.st_mode & 0o111 == 0o111:
        yield f"run {name}"
    if seen.st_mode & 0o444 != 0o444:
        yield f"closed {name}"
    if sealed_at is not None and seen.st_mtime_ns > sealed_at:
        yield f"written {name}"
