"""Small folders as they were at one moment, to bring them back."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Kept:
    """A folder (no content), or a file with its content."""

    mode: int
    content: bytes | None


class Snapshot:
    """Remembers the folders and regular files below some folders; links and pipes are left as they are."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._kept = _kept(folders)

    def restore(self) -> None:
        """Undo what was written, removed or added since."""
        now = _kept(self._folders)
        for path in sorted(now.keys() - self._kept.keys(), reverse=True):
            _remove(path)
        for path, kept in sorted(self._kept.items()):
            if now.get(path) != kept:
                _bring_back(path, kept)


def _kept(folders: tuple[Path, ...]) -> dict[Path, _Kept]:
    found: dict[Path, _Kept] = {}
    for folder in folders:
        for place, _, files in os.walk(folder):
            here = Path(place)
            found[here] = _Kept(here.stat().st_mode, None)
            for path in (here / name for name in files):
                if path.is_file() and not path.is_symlink():
                    found[path] = _Kept(path.stat().st_mode, path.read_bytes())
    return found


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _bring_back(path: Path, kept: _Kept) -> None:
    if kept.content is None:
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.write_bytes(kept.content)
    path.chmod(kept.mode & 0o7777)
