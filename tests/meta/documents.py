"""Reads the project's own files for the tests that keep its maps true."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src/bramley"

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")

# Folders of a checkout that are not the project's own files.
_FOREIGN = {".git", ".venv", "__pycache__", ".bramley", ".hypothesis", "dist", "build"}


def markdown() -> list[Path]:
    """Return every document of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def name_of(path: Path) -> str:
    """Return the path as people write it, for test ids and messages."""
    return path.relative_to(ROOT).as_posix()


def inline_code(path: Path) -> list[str]:
    """Return what stands in backticks in the prose of a document, fenced blocks left out."""
    return _CODE.findall(_FENCE.sub("", path.read_text()))


def prose(path: Path) -> str:
    """Return a document without its code."""
    return _CODE.sub("", _FENCE.sub("", path.read_text()))


def fenced(path: Path) -> list[str]:
    """Return the fenced blocks of a document."""
    return _FENCE.findall(path.read_text())


@functools.cache
def source_text(*folders: str) -> str:
    """Return all Python text under these folders of the project."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(path.read_text() for path in paths)


def own_files() -> Iterator[Path]:
    """Yield every text file that belongs to the project."""
    for folder, inner, names in os.walk(ROOT):
        # Not gone into: they hold ten times as many files as the project.
        inner[:] = sorted(name for name in inner if not _is_foreign(name))
        yield from (Path(folder, name) for name in sorted(names) if not _is_foreign(name))


def _is_foreign(name: str) -> bool:
    return name in _FOREIGN or name.endswith("_cache")
