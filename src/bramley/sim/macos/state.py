"""The state of a simulated Mac, except its files: one JSON document, changed under a lock, by any process.

Times are seconds since 1970 and their keys end in `_at`, counters in `_count`, process ids are `pid`: these differ from run to run
and are not part of a snapshot, see `persistent_state`. This module does not depend on the content of the document.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

FOLDER = ".mac"
STATE = "state.json"
_LOCK = "lock"
_TRANSIENT = ("_at", "_count", "_id")


class Store:
    """The document of one Mac."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        # Used very often, so the text is made once.
        self._path = str(self._folder / STATE)
        self._open: dict[str, Any] | None = None
        self._cached: tuple[tuple[int, int], dict[str, Any]] | None = None
        self._is_fresh = False
        self._caching_depth = 0
        self._cache_ends: list[Callable[[], object]] = []

    @property
    def is_caching(self) -> bool:
        """Return whether what is read now may be cached until the end of a `caching` block."""
        return self._caching_depth > 0

    def on_cache_end(self, clear: Callable[[], object]) -> None:
        """Call a function whenever a `caching` block ends."""
        self._cache_ends.append(clear)

    @contextmanager
    def caching(self) -> Iterator[None]:
        """Cache what is read within the block: no other process may change the Mac meanwhile. Blocks may be nested."""
        self._caching_depth += 1
        try:
            yield
        finally:
            self._caching_depth -= 1
            self._is_fresh = False
            for clear in self._cache_ends:
                clear()

    @property
    def is_open(self) -> bool:
        """Return whether this process is changing the document."""
        return self._open is not None

    def create(self, state: Mapping[str, Any]) -> None:
        """Create the document."""
        # It holds passwords.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._save(state)

    def read(self) -> Mapping[str, Any]:
        """Return the document, within a change the one that is being changed; it is read-only."""
        return self._load() if self._open is None else self._open

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Yield the document under the lock, and save it at the end unless an error is raised. Changes may be nested."""
        if self._open is not None:
            yield self._open
            return
        with self._locked():
            # Another process may have changed the document before we got the lock.
            self._is_fresh = False
            # A copy: later readers must not see what is discarded after an error.
            self._open = msgspec.json.decode(msgspec.json.encode(self._load()))
            try:
                yield self._open
                self._save(self._open)
            finally:
                self._open = None

    def _load(self) -> dict[str, Any]:
        if self._cached is not None and self._is_fresh:
            return self._cached[1]
        version = _version(self._path)
        if self._cached is None or self._cached[0] != version:
            self._cached = (version, msgspec.json.decode(Path(self._path).read_bytes()))
        self._is_fresh = self.is_caching
        return self._cached[1]

    def _save(self, state: Mapping[str, Any]) -> None:
        new = f"{self._path}.{os.getpid()}"
        text = msgspec.json.encode(state, order="sorted")
        Path(new).write_bytes(msgspec.json.format(text, indent=1))
        version = _version(new)
        Path(new).replace(self._path)
        # The rename keeps inode and time, so this version need not be read again.
        self._cached = (version, msgspec.json.decode(text))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _version(path: str) -> tuple[int, int]:
    stat = os.stat(path)  # noqa: PTH116 - paths are strings here, as in files.py
    return (stat.st_ino, stat.st_mtime_ns)


def persistent_state(value: Any) -> Any:
    """Return a part of the document without what differs from run to run."""
    if isinstance(value, dict):
        return {
            key: persistent_state(each) for key, each in value.items() if not _is_transient(key)
        }
    return [persistent_state(each) for each in value] if isinstance(value, list) else value


def _is_transient(key: str) -> bool:
    return key == "pid" or key.endswith(_TRANSIENT)
