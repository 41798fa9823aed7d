from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration, Conflict, Unavailable
from bramley.dispatch.jobs import State
from bramley.dispatch.store import sql, sqlite
from bramley.dispatch.store.migration import migrate
from bramley.dispatch.store.operations import Operation, rows
from bramley.dispatch.store.sqlite import SqliteDatabase
from bramley.dispatch.store.store import Store
from tests.contract.dispatch_store.builders import NOW, enqueue, minted, state_of

pytestmark = pytest.mark.real_time


def files_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_backup_of_a_running_store_is_complete_and_private(tmp_path: Path) -> None:
    store = Store(SqliteDatabase.open(tmp_path / "dispatch.sqlite"))
    await enqueue(store, *range(1, 50))
    writing = asyncio.gather(*(enqueue(store, number) for number in range(50, 300)))

    await asyncio.to_thread(sqlite.back_up, tmp_path / "dispatch.sqlite", tmp_path / "copy.sqlite")
    await writing
    await store.close()

    copy = Store(SqliteDatabase.open(tmp_path / "copy.sqlite"))
    assert {await state_of(copy, number) for number in range(1, 50)} == {State.QUEUED}
    await copy.close()
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "copy.sqlite.new").exists()


@pytest.mark.parametrize(
    "statement",
    [sql.COUNT_CLAIMS, sql.POOLS_WITH_CLAIMS, sql.QUEUE_POSITION, sql.ACTIVE_PER_ACCOUNT],
)
async def test_signals_read_live_claims_only(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "dispatch.sqlite"
    await SqliteDatabase.open(path).close()
    parameters = {"pool": "macos", "oldest": 0, "id": 1}

    with contextlib.closing(sqlite3.connect(path)) as connection:
        explained = f"EXPLAIN QUERY PLAN {sql.SQLITE.render(statement)}"
        steps = [row[3] for row in connection.execute(explained, parameters)]

    of_claims = [step for step in steps if " claims " in step]
    assert of_claims
    assert all("claims_live" in step or "claims_active" in step for step in of_claims)


async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    store = Store(SqliteDatabase.open(tmp_path / "dispatch.sqlite"))
    await enqueue(store, 1)

    modes = {path.name: path.stat().st_mode & 0o777 for path in files_of(tmp_path)}

    await store.close()
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}


async def test_a_deleted_jit_config_is_not_left_in_the_file(tmp_path: Path) -> None:
    store = Store(SqliteDatabase.open(tmp_path / "dispatch.sqlite"))
    await enqueue(store, 1)
    claim = await minted(store, 1)
    await store.runner_online(claim.handle, NOW)
    await store.close()

    assert not any(b"jit-1" in path.read_bytes() for path in files_of(tmp_path))


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    database = SqliteDatabase.open(tmp_path / "dispatch.sqlite")
    await database.run(lambda: rows("INSERT INTO schema_version (version) VALUES (99)"))
    await database.close()

    with pytest.raises(BadConfiguration, match="newer Bramley"):
        SqliteDatabase.open(tmp_path / "dispatch.sqlite")


async def test_a_failed_migration_leaves_the_old_schema(tmp_path: Path) -> None:
    database = SqliteDatabase.open(tmp_path / "dispatch.sqlite")
    steps = ((), ("CREATE TABLE new (id BIGINT)", "CREATE TABLE new (id BIGINT)"))

    with pytest.raises(Unavailable):
        await database.run(lambda: migrate(steps))

    assert await database.run(lambda: migrate(((), ("CREATE TABLE new (id BIGINT)",)))) == 1
    await database.close()


async def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dispatch.sqlite").write_bytes(b"no database" * 100)

    with pytest.raises(BadConfiguration, match="cannot be used"):
        SqliteDatabase.open(tmp_path / "dispatch.sqlite")


async def test_a_failed_operation_of_a_group_undoes_only_itself(tmp_path: Path) -> None:
    database = SqliteDatabase.open(tmp_path / "dispatch.sqlite")
    store = Store(database)

    def failing() -> Operation[None]:
        yield from rows("INSERT INTO accounts (account) VALUES ('x')")
        yield from rows("INSERT INTO accounts (account) VALUES ('x')")

    ends = await asyncio.gather(
        enqueue(store, 1), database.run(failing), enqueue(store, 2), return_exceptions=True
    )

    assert isinstance(ends[1], Conflict)
    assert [await state_of(store, number) for number in (1, 2)] == [State.QUEUED] * 2
    assert await database.run(lambda: rows("SELECT * FROM accounts")) == []
    await database.close()


async def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    database = SqliteDatabase.open(tmp_path / "dispatch.sqlite")

    (mode,) = await database.run(lambda: rows("PRAGMA synchronous"))

    await database.close()
    assert mode["synchronous"] == 2
    with sqlite3.connect(tmp_path / "dispatch.sqlite") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_what_was_acknowledged_is_in_the_file(tmp_path: Path) -> None:
    store = Store(SqliteDatabase.open(tmp_path / "dispatch.sqlite"))
    assert await store.receive("guid-1", "workflow_job", b"{}", NOW)

    with contextlib.closing(sqlite3.connect(tmp_path / "dispatch.sqlite")) as other:
        found = other.execute("SELECT guid FROM deliveries").fetchall()

    await store.close()
    assert found == [("guid-1",)]


async def test_a_closed_store_refuses_calls(tmp_path: Path) -> None:
    store = Store(SqliteDatabase.open(tmp_path / "dispatch.sqlite"))
    await store.close()
    await store.close()

    with pytest.raises(Unavailable, match="closed"):
        await enqueue(store, 1)
