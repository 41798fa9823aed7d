"""The operation that brings a database to the newest schema; a newer one is refused unchanged."""

from __future__ import annotations

from bramley.base.errors import BadConfiguration
from bramley.dispatch.store import sql
from bramley.dispatch.store.operations import Operation, first, rows


def migrate(migrations: tuple[tuple[str, ...], ...] = sql.MIGRATIONS) -> Operation[int]:
    """Apply the missing migrations, all or none; return how many there were."""
    yield from rows(sql.CREATE_VERSION)
    row = yield from first(sql.READ_VERSION)
    version = int(row["version"]) if row else 0
    if version > len(migrations):
        raise BadConfiguration(
            f"the database was written by a newer Bramley (format {version}, this one knows up to "
            f"{len(migrations)}); start that version again, or restore a backup made before the upgrade"
        )
    for number, statements in enumerate(migrations[version:], start=version + 1):
        for statement in statements:
            yield from rows(statement)
        yield from rows(sql.ADD_VERSION, version=number)
    return len(migrations) - version
