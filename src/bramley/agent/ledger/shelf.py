"""A folder of records of one kind, one JSON file each, held in memory as well: reads cost nothing.

A record that cannot be read is set aside under its name and never forgotten: what it stood for is still ours, in a state that
nobody knows. One written by a newer release is refused, because this one would lose what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from bramley.agent.ledger import files
from bramley.agent.ledger.records import VERSION
from bramley.base import errors, log

logger = log.get(__name__)

_RECORD = ".json"
_ASIDE = ".unreadable"


class Versioned(Protocol):
    """What every record has."""

    @property
    def version(self) -> int:
        """Return the version of the format it is written in."""
        ...


R = TypeVar("R", bound=Versioned)


class LedgerUnavailable(errors.Unavailable):
    """The disk does not take the record; what it would say has not happened yet."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that was set aside: the file's name tells what it stood for."""

    kind: str
    name: str
    path: Path


class _Header(msgspec.Struct, frozen=True):
    version: int


class Shelf(Generic[R]):
    """Keeps the records of one kind."""

    def __init__(self, folder: Path, kind: type[R], *, durable: bool) -> None:
        self._folder = folder
        self._decoder = msgspec.json.Decoder(kind)
        self._durable = durable
        self.records: dict[str, R] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._load()

    def put(self, name: str, record: R) -> None:
        """Write a record; it counts only once it is on disk."""
        try:
            files.replace(self._path(name), msgspec.json.encode(record), durable=self._durable)
        except OSError as error:
            raise LedgerUnavailable(f"the record of {name} was not written: {error}") from error
        self.records[name] = record

    def drop(self, name: str) -> None:
        """Forget a record, and one of this name that was set aside; done if there is none."""
        try:
            files.remove(self._path(name), durable=self._durable)
            files.remove(self._path(name).with_suffix(_ASIDE), durable=False)
        except OSError as error:
            raise LedgerUnavailable(f"the record of {name} was not removed: {error}") from error
        self.records.pop(name, None)

    def unreadable(self) -> Iterator[Unreadable]:
        """Yield what was set aside, also by an earlier agent, and has no new record since."""
        for path in sorted(self._folder.glob(f"*{_ASIDE}")):
            name = path.name.removesuffix(_ASIDE)
            if name not in self.records:
                yield Unreadable(self._folder.name, name, path)

    def _path(self, name: str) -> Path:
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"no record can be called {name!r}")
        return self._folder / f"{name}{_RECORD}"

    def _load(self) -> None:
        for draft in self._folder.glob(f"*{files.SUFFIX}"):
            draft.unlink(missing_ok=True)
        for path in sorted(self._folder.glob(f"*{_RECORD}")):
            record = self._read(path)
            if record is not None:
                self.records[path.name.removesuffix(_RECORD)] = record

    def _read(self, path: Path) -> R | None:
        content = path.read_bytes()
        try:
            version = msgspec.json.decode(content, type=_Header).version
            if version <= VERSION:
                return self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._set_aside(path, error)
            return None
        raise errors.BadConfiguration(
            f"{path} is of version {version}, and this agent knows {VERSION}: run the newer agent"
        )

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = path.rename(path.with_suffix(_ASIDE))
        logger.error("Set aside a record that cannot be read", path=str(aside), error=str(error))
