"""The disk of a store: one SQLite file that survives `kill -9` and loss of power.

`database` decides whether a file may be used; here it is loaded once and then written one commit group at a time. The values
that selectors match are stored beside each body, so that loading needs no knowledge of kinds and equal labels are decoded once.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bramley.api.names import metrics as names
from bramley.apiserver.store import sql
from bramley.apiserver.store.damage import DECODE_ERRORS
from bramley.apiserver.store.database import Migrations, open_database, scalar
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.journal import Disk
from bramley.apiserver.store.records import NO_VALUES, Change, Key, Record
from bramley.apiserver.store.settings import Settings
from bramley.base.counters import Counter, Histogram


class MeasuredDisk:
    """A disk that measures its commits; one thread commits, any other may read the numbers."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.commits = Histogram(names.STORE_COMMIT_DURATION.buckets)
        self.failures = Counter()

    def commit(self, group: Sequence[Change]) -> None:
        """Commit, and measure the duration or count the failure."""
        began = time.perf_counter()
        try:
            self._disk.commit(group)
        except StorageUnavailable:
            self.failures.inc()
            raise
        self.commits.observe(time.perf_counter() - began)

    def close(self) -> None:
        """Close the files."""
        self._disk.close()

    def sizes_bytes(self) -> Iterator[tuple[str, int]]:
        """Yield the sizes of the database and its log, as far as these files exist."""
        for name, path in (
            ("database", self._path),
            ("log", self._path.with_name(f"{self._path.name}-wal")),
        ):
            if path.exists():
                yield name, path.stat().st_size


MAX_ROWS_PER_STATEMENT = 128
_ROWS_AT_ONCE = 1024


class Snapshot(msgspec.Struct, frozen=True):
    """The content of a file; no watch resumes from below `floor`, whatever the resource."""

    revision: int
    last_revisions: Mapping[str, int]
    records: Mapping[str, Sequence[Record]]
    floor: int = 0


class SqliteFile:
    """The disk of a store: commits groups of changes to one file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._revision = int(scalar(connection, sql.READ_REVISION))
        self._in_doubt = False

    @classmethod
    def open(
        cls, path: Path, settings: Settings, *, migrations: Migrations = sql.MIGRATIONS
    ) -> SqliteFile:
        """Open the file, created or migrated as needed; raise BadConfiguration if it is unusable."""
        return cls(open_database(path, settings, migrations=migrations))

    def load(self) -> Snapshot:
        """Read everything."""
        revisions = dict(self._connection.execute(sql.READ_REVISIONS))
        records: dict[str, list[Record]] = {}
        for record in _records(self._connection.execute(sql.READ_OBJECTS)):
            records.setdefault(record.key.resource, []).append(record)
        floor = revisions.pop(sql.FLOOR, 0)
        return Snapshot(revisions.pop(""), revisions, records, floor)

    def fill(self, content: Snapshot) -> None:
        """Store all content in one transaction; the file must be new."""
        self._connection.execute(sql.BEGIN)
        for records in content.records.values():
            for start in range(0, len(records), _ROWS_AT_ONCE):
                rows = [_row(record) for record in records[start : start + _ROWS_AT_ONCE]]
                self._execute(sql.upsert_objects, rows)
        revisions = {**content.last_revisions, "": content.revision, sql.FLOOR: content.floor}
        self._execute(sql.upsert_revisions, list(revisions.items()))
        self._connection.execute(sql.COMMIT)

    def commit(self, group: Sequence[Change]) -> None:
        """Store the group in one transaction that is durable when this returns."""
        try:
            # An error of COMMIT does not say whether the transaction reached the file.
            if self._in_doubt:
                self._resolve_doubt()
            self._connection.execute(sql.BEGIN)
            self._store(group)
            self._connection.execute(sql.COMMIT)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            # The last two are raised for texts and sizes that SQLite cannot store. They must not end the writer thread.
            self._in_doubt = True
            self._roll_back()
            raise StorageUnavailable(f"the write failed: {error}") from error
        self._revision = group[-1].rv

    def close(self) -> None:
        """Close the file after a checkpoint of its log."""
        self._connection.close()

    def _store(self, group: Sequence[Change]) -> None:
        # Only the last state of an object within the group is written.
        last = {change.record.key: change for change in group}
        rows = [_row(change.record) for change in last.values() if change.after]
        removed = [change.record.key for change in last.values() if not change.after]
        revisions = {change.record.key.resource: change.rv for change in group}
        revisions[""] = group[-1].rv
        self._execute(sql.upsert_objects, rows)
        self._execute(sql.delete_objects, removed)
        self._execute(sql.upsert_revisions, list(revisions.items()))

    def _execute(self, statement: Callable[[int], str], rows: Sequence[tuple[Any, ...]]) -> None:
        for chunk in _chunks(rows):
            self._connection.execute(
                statement(len(chunk)), [value for row in chunk for value in row]
            )

    def _resolve_doubt(self) -> None:
        """Continue after a failed commit only if none of it was stored."""
        if scalar(self._connection, sql.READ_REVISION) != self._revision:
            # It was reported as failed but is stored: memory and disk differ.
            raise StorageUnavailable(
                "a failed write reached the file; restart to read it again", cured_by_restart=True
            )
        self._in_doubt = False

    def _roll_back(self) -> None:
        # SQLite rolls some failures back itself, and the rollback may fail too: nothing was committed either way.
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute(sql.ROLLBACK)


def _row(record: Record) -> tuple[Any, ...]:
    return (*record.key, record.rv, _text(record.labels), _text(record.fields), record.body)


def _text(mapping: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(mapping)).decode() if mapping else ""


def _records(rows: Iterable[tuple[str, str, str, int, str, str, bytes]]) -> Iterator[Record]:
    """Decode rows; equal texts and equal sets of labels are shared."""
    shared: dict[str, Mapping[str, str]] = {"": NO_VALUES}
    for resource, namespace, name, rv, labels, fields, body in rows:
        key = Key(sys.intern(resource), sys.intern(namespace), name)
        try:
            yield Record(key, rv, body, _mapping(labels, shared), _mapping(fields, shared))
        except DECODE_ERRORS:
            # Selectors cannot match it, so the object counts as damaged, like one without a body.
            yield Record(key, rv, b"")


def _mapping(text: str, shared: dict[str, Mapping[str, str]]) -> Mapping[str, str]:
    mapping = shared.get(text)
    if mapping is None:
        pairs = msgspec.json.decode(text, type=dict[str, str])
        mapping = {sys.intern(name): sys.intern(value) for name, value in pairs.items()}
        shared[text] = mapping
    return mapping


def _chunks(rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Split rows into chunks of powers of two, so that a few prepared statements serve every group."""
    start, size = 0, MAX_ROWS_PER_STATEMENT
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        yield rows[start : start + size]
        start += size
