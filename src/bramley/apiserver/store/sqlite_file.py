"""One SQLite file that survives `kill -9` and loss of power: opening, checking, loading, committing.

The only user of sqlite3. A file is looked at through a read-only connection first, so that one that is damaged, foreign or
newer than this code is refused exactly as it was found.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bramley.apiserver.store import folder as folders
from bramley.apiserver.store import sql
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.records import NOTHING, Change, Key, Record
from bramley.apiserver.store.settings import Settings
from bramley.base import log
from bramley.base.errors import BadConfiguration

logger = log.get(__name__)

MOST_ROWS_PER_STATEMENT = 128

Migrations = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file held when it was opened."""

    revision: int
    last_revisions: Mapping[str, int]
    records: Mapping[str, Sequence[Record]]


class SqliteFile:
    """The disk of a store: commits groups of changes to one file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._revision = int(_scalar(connection, sql.READ_REVISION))
        self._in_doubt = False

    @classmethod
    def open(
        cls, path: Path, settings: Settings, *, migrations: Migrations = sql.MIGRATIONS
    ) -> SqliteFile:
        """Open the file, made or brought up to date as needed; raise BadConfiguration if it is unusable."""
        with _explained(path):
            folders.make_private_file(path)
            version = _inspect(path, newest=len(migrations))
            connection = _connect(path, settings)
            with contextlib.ExitStack() as undo:
                undo.callback(connection.close)
                _migrate(connection, path, version, migrations)
                undo.pop_all()
        return cls(connection)

    def load(self) -> Loaded:
        """Read everything."""
        revisions = dict(self._connection.execute(sql.READ_REVISIONS))
        records: dict[str, list[Record]] = {}
        for record in _records(self._connection.execute(sql.READ_OBJECTS)):
            records.setdefault(record.key.resource, []).append(record)
        return Loaded(revisions.pop(""), revisions, records)

    def commit(self, group: Sequence[Change]) -> None:
        """Store the group in one transaction that is on the disk when this returns."""
        try:
            if self._in_doubt:
                self._resolve_doubt()
            self._connection.execute(sql.BEGIN)
            self._store(group)
            self._connection.execute(sql.COMMIT)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            # The last two: texts and sizes that SQLite cannot hold. They must not kill the writer.
            self._in_doubt = True
            self._roll_back()
            raise StorageUnavailable(f"the disk did not take the write: {error}") from error
        self._revision = group[-1].rv

    def close(self) -> None:
        """Close the file, folding the log into it."""
        self._connection.close()

    def _store(self, group: Sequence[Change]) -> None:
        # Only the last state of an object within the group is worth writing.
        last = {change.record.key: change for change in group}
        kept = [_row(change.record) for change in last.values() if change.after]
        gone = [change.record.key for change in last.values() if not change.after]
        revisions = {change.record.key.resource: change.rv for change in group}
        revisions[""] = group[-1].rv
        self._execute(sql.upsert_objects, kept)
        self._execute(sql.delete_objects, gone)
        self._execute(sql.upsert_revisions, list(revisions.items()))

    def _execute(self, statement: Callable[[int], str], rows: Sequence[tuple[Any, ...]]) -> None:
        for chunk in _chunks(rows):
            self._connection.execute(
                statement(len(chunk)), [value for row in chunk for value in row]
            )

    def _resolve_doubt(self) -> None:
        """Go on after a failure only if it left nothing behind."""
        if _scalar(self._connection, sql.READ_REVISION) != self._revision:
            # Reported as failed, yet stored: what is in memory is no longer what is on the disk.
            raise sqlite3.DatabaseError("a failed write reached the file; restart to read it again")
        self._in_doubt = False

    def _roll_back(self) -> None:
        # SQLite itself rolls some failures back, and a disk that fails may fail here too: nothing was committed either way.
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute(sql.ROLLBACK)


def _inspect(path: Path, *, newest: int) -> int:
    """Return the file's version after refusing what must not be opened for writing."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        version = _scalar(connection, sql.READ_VERSION)
        if _scalar(connection, sql.READ_APPLICATION) != sql.APPLICATION_ID:
            _refuse_foreign(connection, path)
        if version > newest:
            raise BadConfiguration(
                f"{path} was written by a newer Bramley (format {version}, this one knows up to "
                f"{newest}); start that version again, or restore a backup made before the upgrade"
            )
        if (found := _scalar(connection, sql.QUICK_CHECK)) != "ok":
            raise sqlite3.DatabaseError(found)
    finally:
        connection.close()
        # Left by the read-only look; the exclusive connection keeps this index in memory.
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
    return int(version)


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    if _scalar(connection, sql.COUNT_TABLES):
        raise BadConfiguration(f"{path} is a database, but not one of Bramley's; move it away")


def _connect(path: Path, settings: Settings) -> sqlite3.Connection:
    # Opened here, used by the writer thread alone afterwards; transactions are begun and ended by name.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    for pragma in sql.connection_pragmas(
        checkpoint_pages=settings.checkpoint_pages, wal_limit_bytes=settings.wal_limit_bytes
    ):
        connection.execute(pragma)
    return connection


def _migrate(
    connection: sqlite3.Connection, path: Path, version: int, migrations: Migrations
) -> None:
    if version == len(migrations):
        return
    if version > 0:
        _back_up(connection, path, version)
    connection.execute(sql.BEGIN)
    for step in migrations[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(sql.CLAIM_APPLICATION)
    connection.execute(sql.write_version(len(migrations)))
    connection.execute(sql.COMMIT)
    logger.info("Brought the database up to date", path=path, before=version, now=len(migrations))


def _back_up(connection: sqlite3.Connection, path: Path, version: int) -> None:
    copy = path.with_name(f"{path.name}.v{version}.backup")
    copy.unlink(missing_ok=True)
    folders.make_private_file(copy)
    logger.info("Backing up the database before its migration", copy=copy)
    connection.execute(sql.BACKUP_INTO, (str(copy),))
    folders.sync_file(copy)
    folders.sync_folder(path.parent)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says while opening into what to do about it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise BadConfiguration(
            f"{path} cannot be opened: {error}; free some space or correct its permissions"
        ) from error
    except sqlite3.DatabaseError as error:
        raise BadConfiguration(
            f"{path} is damaged ({error}) and was left as it is; restore a backup, or move it away "
            "to start with an empty store"
        ) from error
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be used: {error.strerror}") from error


def _scalar(connection: sqlite3.Connection, statement: str) -> Any:
    return connection.execute(statement).fetchone()[0]


def _row(record: Record) -> tuple[Any, ...]:
    return (*record.key, record.rv, _text(record.labels), _text(record.fields), record.body)


def _text(mapping: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(mapping)).decode() if mapping else ""


def _records(rows: Iterable[tuple[str, str, str, int, str, str, bytes]]) -> Iterator[Record]:
    """Decode rows; equal texts and equal sets of labels are kept once."""
    shared: dict[str, Mapping[str, str]] = {"": NOTHING}
    for resource, namespace, name, rv, labels, fields, body in rows:
        key = Key(sys.intern(resource), sys.intern(namespace), name)
        yield Record(key, rv, body, _mapping(labels, shared), _mapping(fields, shared))


def _mapping(text: str, shared: dict[str, Mapping[str, str]]) -> Mapping[str, str]:
    mapping = shared.get(text)
    if mapping is None:
        pairs = msgspec.json.decode(text, type=dict[str, str])
        mapping = {sys.intern(name): sys.intern(value) for name, value in pairs.items()}
        shared[text] = mapping
    return mapping


def _chunks(rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Cut rows into powers of two, so that a handful of prepared statements serves every group."""
    start, size = 0, MOST_ROWS_PER_STATEMENT
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        yield rows[start : start + size]
        start += size
