"""Opening a database file: created completely or not at all, inspected before it is changed, migrated after a backup.

A file is inspected through a read-only connection first, so that a file that is damaged, of another program or newer than this
code is refused unchanged. The error messages say what to do.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bramley.apiserver.store import data_folder, sql
from bramley.apiserver.store.settings import Settings
from bramley.base import log
from bramley.base.errors import BadConfiguration

logger = log.get(__name__)

Migrations = tuple[tuple[str, ...], ...]


def open_database(path: Path, settings: Settings, *, migrations: Migrations) -> sqlite3.Connection:
    """Return the only connection to an up-to-date database; raise BadConfiguration if the file is unusable."""
    with _translated_errors(path), contextlib.ExitStack() as undo:
        if _size_bytes(path) == 0:
            _refuse_orphaned_log(path)
            _create(path, settings, migrations)
        path.chmod(0o600)
        version = _inspect(path, newest=len(migrations))
        connection = undo.enter_context(contextlib.closing(_connect(path, settings)))
        if version < len(migrations):
            _back_up(connection, path, version)
            _migrate(connection, version, migrations)
            logger.info("Migrated the database", path=path, before=version, now=len(migrations))
        undo.pop_all()
    return connection


def scalar(connection: sqlite3.Connection, statement: str) -> Any:
    """Return the first value of the first row."""
    return connection.execute(statement).fetchone()[0]


def _refuse_orphaned_log(path: Path) -> None:
    """Refuse to create a database beside an old log: SQLite would apply the old changes to the new file."""
    log_file = _log_of(path)
    if _size_bytes(log_file):
        raise BadConfiguration(
            f"{path} is missing or empty, but its log {log_file} is there; restore the database, or "
            "move the log away to start with an empty store"
        )


def _create(path: Path, settings: Settings, migrations: Migrations) -> None:
    """Create the file beside its place and rename it, so that a crash never leaves half a database."""
    new = path.with_name(path.name + ".new")
    # A crash may have left an unfinished file and its log.
    for leftover in path.parent.glob(new.name + "*"):
        leftover.unlink()
    data_folder.make_private_file(new)
    with contextlib.closing(_connect(new, settings)) as connection:
        _migrate(connection, 0, migrations)
    # The content must be durable before the name, and the name before anything is acknowledged.
    data_folder.sync_file(new)
    new.rename(path)
    data_folder.sync_folder(path.parent)


def _connect(path: Path, settings: Settings) -> sqlite3.Connection:
    # Opened here, used only by the writer thread afterwards; transactions begin and end explicitly.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    for pragma in sql.connection_pragmas(
        checkpoint_pages=settings.checkpoint_pages, wal_limit_bytes=settings.wal_limit_bytes
    ):
        connection.execute(pragma)
    return connection


def _inspect(path: Path, *, newest: int) -> int:
    """Return the file's version; raise BadConfiguration if it must not be opened for writing."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        version = int(scalar(connection, sql.READ_VERSION))
        if scalar(connection, sql.READ_APPLICATION) != sql.APPLICATION_ID:
            raise BadConfiguration(f"{path} is a database of another program; move it away")
        if version > newest:
            raise BadConfiguration(
                f"{path} was written by a newer Bramley (format {version}, this one knows up to "
                f"{newest}); start that version again, or restore a backup made before the upgrade"
            )
        if (problem := scalar(connection, sql.QUICK_CHECK)) != "ok":
            raise sqlite3.DatabaseError(" ".join(problem.split()))
    finally:
        connection.close()
        _tidy(path)
    return version


def _tidy(path: Path) -> None:
    """Remove what the inspection left behind: the log's index, and the log if it is empty."""
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    if _size_bytes(_log_of(path)) == 0:
        _log_of(path).unlink(missing_ok=True)


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _migrate(connection: sqlite3.Connection, version: int, migrations: Migrations) -> None:
    connection.execute(sql.BEGIN)
    for step in migrations[version:]:
        for statement in step:
            connection.execute(statement)
    # In the same transaction as the steps: after a crash the migration starts again from the old version.
    connection.execute(sql.CLAIM_APPLICATION)
    connection.execute(sql.write_version(len(migrations)))
    connection.execute(sql.COMMIT)


def _back_up(connection: sqlite3.Connection, path: Path, version: int) -> None:
    copy = path.with_name(f"{path.name}.v{version}.backup")
    # VACUUM INTO refuses a file with content, which an interrupted migration may have left.
    copy.unlink(missing_ok=True)
    data_folder.make_private_file(copy)
    logger.info("Backing up the database before its migration", copy=copy)
    connection.execute(sql.BACKUP_INTO, (str(copy),))
    # Durable before the migration changes the original.
    data_folder.sync_file(copy)
    data_folder.sync_folder(path.parent)


@contextlib.contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into BadConfiguration that says what to do."""
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
