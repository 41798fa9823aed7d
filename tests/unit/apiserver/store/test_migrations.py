"""Older files are brought up to date, after a backup, in one step that happens wholly or not at all."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from bramley.apiserver.store import sql
from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.records import Change, Record
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.sqlite_file import SqliteFile
from bramley.base.errors import BadConfiguration
from tests.unit.apiserver.store.doubles import POD

NEXT = (*sql.MIGRATIONS, ("ALTER TABLE objects ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",))
BROKEN = (*NEXT, ("CREATE TABLE fine (a TEXT)", "CREATE TABLE objects (a TEXT)"))

RECORD = Record(POD, 7, b"{}", {"app": "vm"})


def old_file(folder: Path) -> Path:
    path = folder / DATABASE
    with contextlib.closing(SqliteFile.open(path, Settings())) as disk:
        disk.commit([Change("ADDED", RECORD, None)])
    return path


def version_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(sql.READ_VERSION).fetchone()[0])


def test_new_file_has_the_newest_schema_version(tmp_path: Path) -> None:
    SqliteFile.open(tmp_path / DATABASE, Settings(), migrations=NEXT).close()

    assert version_of(tmp_path / DATABASE) == len(NEXT)
    assert not list(tmp_path.glob("*.backup"))


def test_empty_file_of_an_interrupted_creation_is_completed(tmp_path: Path) -> None:
    """The first start may be cut before its first transaction."""
    (tmp_path / DATABASE).touch()

    with contextlib.closing(SqliteFile.open(tmp_path / DATABASE, Settings())) as disk:
        assert disk.load().revision == 0


def test_older_file_is_migrated_and_keeps_its_objects(tmp_path: Path) -> None:
    path = old_file(tmp_path)

    with contextlib.closing(SqliteFile.open(path, Settings(), migrations=NEXT)) as disk:
        assert disk.load().records == {"pods": [RECORD]}

    assert version_of(path) == len(NEXT)


def test_the_backup_before_a_migration_opens_with_the_older_code(tmp_path: Path) -> None:
    path = old_file(tmp_path)
    (tmp_path / f"{DATABASE}.v1.backup").write_text("left by a migration that was cut")

    SqliteFile.open(path, Settings(), migrations=NEXT).close()

    backup = tmp_path / f"{DATABASE}.v1.backup"
    assert backup.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(SqliteFile.open(backup, Settings())) as disk:
        assert disk.load().records == {"pods": [RECORD]}


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = old_file(tmp_path)

    with pytest.raises(BadConfiguration, match="already exists"):
        SqliteFile.open(path, Settings(), migrations=BROKEN)

    with contextlib.closing(SqliteFile.open(path, Settings())) as disk:
        assert disk.load().records == {"pods": [RECORD]}
