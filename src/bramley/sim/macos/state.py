"""What a simulated Mac remembers besides its files: one JSON document, changed under a lock, by any process.

Times are seconds since 1970 and their keys end in `_at`, counters in `_count`, process ids are `pid`: these differ from run to
run and are no part of what a Mac has become, see `lasting`. Nothing here knows what the document says.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec


class Moment:
    """Tells whether a moment lasts, and has forgotten when it is over what was found out in it."""

    def __init__(self) -> None:
        self._depth = 0
        self._forget: list[Callable[[], object]] = []

    @property
    def lasts(self) -> bool:
        """Return whether a block is under way, so that what is found out now may be kept."""
        return self._depth > 0

    def when_over(self, forget: Callable[[], object]) -> None:
        """Call this whenever a block ends."""
        self._forget.append(forget)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Take a block for one moment, which waits for nobody; one within another is a part of it."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            for forget in self._forget:
                forget()


FOLDER = ".mac"
STATE = "state.json"
_LOCK = "lock"
_FLEETING = ("_at", "_count", "_id")


class Store:
    """The document of one Mac."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        # Asked for all the time, so it is put together once.
        self._path = str(self._folder / STATE)
        self._open: dict[str, Any] | None = None
        self._seen: tuple[tuple[int, int], dict[str, Any]] | None = None
        # Whether others have changed the document is asked once in a moment.
        self.moment = Moment()
        self.moment.when_over(self._doubt)
        self._is_fresh = False

    @property
    def is_open(self) -> bool:
        """Return whether a change is under way here."""
        return self._open is not None

    def make(self, state: Mapping[str, Any]) -> None:
        """Begin with this document."""
        # It holds passwords.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._save(state)

    def read(self) -> Mapping[str, Any]:
        """Return the document, and within a change the one that is being changed; whoever reads it does not change it."""
        return self._load() if self._open is None else self._open

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Hold the lock and give out the document; it is kept at the end, unless an error came. A change within one is part of it."""
        if self._open is not None:
            yield self._open
            return
        with self._locked():
            self._doubt()
            # A copy of its own: what is thrown away after an error must not be seen by later readers.
            self._open = msgspec.json.decode(msgspec.json.encode(self._load()))
            try:
                yield self._open
                self._save(self._open)
            finally:
                self._open = None

    def _doubt(self) -> None:
        self._is_fresh = False

    def _load(self) -> dict[str, Any]:
        if self._seen is not None and self._is_fresh:
            return self._seen[1]
        version = _version(self._path)
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, msgspec.json.decode(Path(self._path).read_bytes()))
        self._is_fresh = self.moment.lasts
        return self._seen[1]

    def _save(self, state: Mapping[str, Any]) -> None:
        fresh = f"{self._path}.{os.getpid()}"
        text = msgspec.json.encode(state, order="sorted")
        Path(fresh).write_bytes(msgspec.json.format(text, indent=1))
        version = _version(fresh)
        Path(fresh).replace(self._path)
        # What was written need not be read again; it keeps its number and time under its new name.
        self._seen = (version, msgspec.json.decode(text))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        held = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)


def _version(path: str) -> tuple[int, int]:
    stat = os.stat(path)  # noqa: PTH116 - paths are texts here, as in files.py
    return (stat.st_ino, stat.st_mtime_ns)


def lasting(value: Any) -> Any:
    """Return a part of the document without what differs from run to run."""
    if isinstance(value, dict):
        return {key: lasting(each) for key, each in value.items() if not _is_fleeting(key)}
    return [lasting(each) for each in value] if isinstance(value, list) else value


def _is_fleeting(key: str) -> bool:
    return key == "pid" or key.endswith(_FLEETING)
