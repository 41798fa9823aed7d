"""A store's content as a database file of its own, and the same content with all revisions raised.

Written beside the store from a snapshot, by any thread: neither the store's file nor its writer is touched.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from bramley.apiserver.store.damage import Damage, Flaw, flawless
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.records import Record
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.sqlite_file import Loaded, SqliteFile


def write(path: Path, content: Loaded, settings: Settings | None = None) -> None:
    """Write the content into a new database file, which is whole and on the disk when this returns."""
    try:
        with contextlib.closing(SqliteFile.open(path, settings or Settings())) as disk:
            disk.fill(content)
    except (sqlite3.Error, OSError) as error:
        raise StorageUnavailable(f"{path} cannot be written: {error}") from error


def read(path: Path, settings: Settings | None = None, *, flaw: Flaw = flawless) -> Loaded:
    """Return all that a database file holds but what has a flaw; raise BadConfiguration if it is unusable."""
    with contextlib.closing(SqliteFile.open(path, settings or Settings())) as disk:
        loaded = disk.load()
    damage = Damage()
    sound = {name: damage.sound(records, flaw) for name, records in loaded.records.items()}
    return msgspec.structs.replace(loaded, records=sound)


def raised(content: Loaded, step: int) -> Loaded:
    """Return the content with every revision raised by `step`, from which nobody resumes who came before."""
    revision = content.revision + step
    records = {
        resource: [_raised(record, step) for record in found]
        for resource, found in content.records.items()
    }
    return Loaded(revision, dict.fromkeys(content.last_revisions, revision), records, revision)


def _raised(record: Record, step: int) -> Record:
    body = msgspec.json.decode(record.body)
    body["metadata"]["resourceVersion"] = str(record.rv + step)
    return msgspec.structs.replace(record, rv=record.rv + step, body=msgspec.json.encode(body))
