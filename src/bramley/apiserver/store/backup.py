"""Copies of a store: a snapshot written to a separate database file, read back, and with all revisions raised.

Any thread may write one: the store's own file and its writer are not touched.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from bramley.apiserver.store.damage import CheckRecord, DamagedObjects, accept_any
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.records import Record
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.sqlite_file import Snapshot, SqliteFile


def write(path: Path, content: Snapshot, settings: Settings | None = None) -> None:
    """Write the content into a new database file, which is complete and durable when this returns."""
    try:
        with contextlib.closing(SqliteFile.open(path, settings or Settings())) as disk:
            disk.fill(content)
    except (sqlite3.Error, OSError) as error:
        raise StorageUnavailable(f"{path} cannot be written: {error}") from error


def read(
    path: Path, settings: Settings | None = None, *, check_record: CheckRecord = accept_any
) -> Snapshot:
    """Return the content of a database file without its damaged objects; raise BadConfiguration if it is unusable."""
    with contextlib.closing(SqliteFile.open(path, settings or Settings())) as disk:
        loaded = disk.load()
    damage = DamagedObjects()
    without_damaged = {
        name: damage.without_damaged(records, check_record)
        for name, records in loaded.records.items()
    }
    return msgspec.structs.replace(loaded, records=without_damaged)


def with_raised_revisions(content: Snapshot, step: int) -> Snapshot:
    """Return the content with every revision raised by `step`, so that no watch from before the restore can resume."""
    revision = content.revision + step
    records = {
        resource: [_raised(record, step) for record in stored]
        for resource, stored in content.records.items()
    }
    return Snapshot(revision, dict.fromkeys(content.last_revisions, revision), records, revision)


def _raised(record: Record, step: int) -> Record:
    body = msgspec.json.decode(record.body)
    body["metadata"]["resourceVersion"] = str(record.rv + step)
    return msgspec.structs.replace(record, rv=record.rv + step, body=msgspec.json.encode(body))
