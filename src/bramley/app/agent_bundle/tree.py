"""A tree of files to be archived, before any byte is copied: names, and where each file's bytes come from.

Files in `bin/` are executable and others are not, whatever the source says, so that no umask gets into an archive.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

BYTECODE_FOLDER = "__pycache__"


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, relative to the folder that it stands in."""

    target: str


Source = Path | bytes | Link
Tree = Mapping[str, Source]


def mode_of(name: str) -> int:
    """Return the mode of the file of this name."""
    return 0o755 if name.startswith("bin/") else 0o644


def is_bytecode(name: str) -> bool:
    """Tell whether a name is that of a compiled module, which follows from its source."""
    return BYTECODE_FOLDER in PurePosixPath(name).parts


def lay_out(tree: Tree, folder: Path) -> None:
    """Write the tree into a folder that does not exist yet."""
    for name, source in sorted(tree.items()):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, Link):
            place.symlink_to(source.target)
        elif isinstance(source, bytes):
            place.write_bytes(source)
        else:
            shutil.copyfile(source, place)


def of_folder(folder: Path) -> dict[str, Source]:
    """Return the tree that a folder holds."""
    found: dict[str, Source] = {}
    for name in names_in(folder):
        path = folder / name
        found[name] = Link(str(path.readlink())) if path.is_symlink() else path
    return found


def names_in(folder: Path) -> Iterator[str]:
    """Yield the names of all files and links in a folder, in order."""
    every = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    yield from sorted(path.relative_to(folder).as_posix() for path in every)


def content(tree: Tree) -> str:
    """Return the SHA-256 over the names, modes and contents of all files but bytecode."""
    whole = hashlib.sha256()
    for name, source in sorted(tree.items()):
        if not is_bytecode(name):
            whole.update(f"{name}\0{mode_of(name):o}\0{_digest(source)}\n".encode())
    return whole.hexdigest()


def _digest(source: Source) -> str:
    if isinstance(source, Link):
        return f"-> {source.target}"
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
