"""All SQL statements of the store, and the numbered migrations of its schema.

There are statements for several rows because Python's sqlite3 releases the interpreter lock at every step of a statement:
with 64 statements instead of one, the event loop can delay the commit 64 times.
"""

from __future__ import annotations

from functools import lru_cache

APPLICATION_ID = 0x4272616D  # "Bram"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # A table with row ids, since bodies are too large to sit well in the pages of an index.
        """
        CREATE TABLE objects (
            resource TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            rv INTEGER NOT NULL,
            labels TEXT NOT NULL,
            fields TEXT NOT NULL,
            body BLOB NOT NULL,
            UNIQUE (resource, namespace, name)
        )
        """,
        # The last revision of each resource; under an empty name that of the whole store, so that no revision is
        # given out twice, also when the newest write was a removal.
        "CREATE TABLE revisions (resource TEXT PRIMARY KEY, rv INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO revisions VALUES ('', 0)",
    ),
)
"""Migration n brings a file from version n to n + 1; a released migration is never edited."""

FLOOR = "*"
"""The row of `revisions` with the lowest revision from which any watch can resume; a restore sets it."""

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
QUICK_CHECK = "PRAGMA quick_check(3)"
READ_VERSION = "PRAGMA user_version"
READ_APPLICATION = "PRAGMA application_id"
CLAIM_APPLICATION = f"PRAGMA application_id = {APPLICATION_ID}"
READ_REVISIONS = "SELECT resource, rv FROM revisions"
READ_REVISION = "SELECT rv FROM revisions WHERE resource = ''"
READ_OBJECTS = "SELECT resource, namespace, name, rv, labels, fields, body FROM objects"
BACKUP_INTO = "VACUUM INTO ?"


def connection_pragmas(*, checkpoint_pages: int, wal_limit_bytes: int) -> tuple[str, ...]:
    """Return the statements that configure each read-write connection, in this order."""
    return (
        # Before WAL mode: the index of the log then lives in this process, and no reader from outside can pin the log.
        "PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA journal_mode = WAL",
        # NORMAL would lose acknowledged writes when the power fails.
        "PRAGMA synchronous = FULL",
        # On macOS a plain fsync leaves the data in the drive's own cache; elsewhere these two do nothing.
        "PRAGMA fullfsync = ON",
        "PRAGMA checkpoint_fullfsync = ON",
        f"PRAGMA wal_autocheckpoint = {checkpoint_pages}",
        f"PRAGMA journal_size_limit = {wal_limit_bytes}",
    )


def write_version(version: int) -> str:
    """Return the statement that sets the file's version."""
    return f"PRAGMA user_version = {version}"


@lru_cache
def upsert_objects(count: int) -> str:
    """Return the statement that stores `count` objects."""
    return (
        "INSERT INTO objects (resource, namespace, name, rv, labels, fields, body) "  # noqa: S608 - counts of question marks, never values
        f"VALUES {_rows(count, '(?,?,?,?,?,?,?)')} "
        "ON CONFLICT (resource, namespace, name) DO UPDATE SET "
        "rv = excluded.rv, labels = excluded.labels, fields = excluded.fields, body = excluded.body"
    )


@lru_cache
def delete_objects(count: int) -> str:
    """Return the statement that removes `count` objects."""
    return (
        "DELETE FROM objects "  # noqa: S608 - counts of question marks, never values
        f"WHERE (resource, namespace, name) IN (VALUES {_rows(count, '(?,?,?)')})"
    )


@lru_cache
def upsert_revisions(count: int) -> str:
    """Return the statement that stores the last revision of `count` resources."""
    return (
        f"INSERT INTO revisions (resource, rv) VALUES {_rows(count, '(?,?)')} "  # noqa: S608 - counts of question marks, never values
        "ON CONFLICT (resource) DO UPDATE SET rv = excluded.rv"
    )


def _rows(count: int, row: str) -> str:
    # Placeholders only: no value is ever put into a statement, so the linter's S608 does not apply.
    return ",".join([row] * count)
