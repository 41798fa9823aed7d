"""The store on a real file: what a restart finds, and which files are refused untouched."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bramley.apiserver.store import sql
from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.errors import Compacted, StorageUnavailable
from bramley.apiserver.store.records import Change, Draft, Key, Record
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.sqlite_file import SqliteFile
from bramley.apiserver.store.store import Store
from bramley.base.errors import BadConfiguration
from tests.unit.apiserver.store.doubles import NODE, OTHER_POD, POD, put, put_of_size, remove

INLINE = Settings(writer_thread=False)

Content = dict[str, bytes]


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    async with Store.open(folder, INLINE) as store:
        yield store


def content(folder: Path) -> Content:
    files = (path for path in folder.iterdir() if path.is_file() and path.name != "lock")
    return {path.name: path.read_bytes() for path in files}


async def filled(folder: Path) -> list[Record]:
    async with opened(folder) as store:
        for number in range(60):
            await store.write(Key("pods", "default", f"{number:02}"), put_of_size(1000))
        return store.list("pods")


async def test_a_restart_finds_everything_as_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.write(
            POD, lambda _, rv: Draft(b"{%d}" % rv, {"app": "vm"}, {"spec.nodeName": "mac-1"})
        )
        await store.write(OTHER_POD, put)
        await store.write(OTHER_POD, remove)
        await store.write(NODE, put)
        before = (store.revision, store.list("pods"), store.list("nodes"))

    async with opened(tmp_path) as store:
        assert (store.revision, store.list("pods"), store.list("nodes")) == before


async def test_revision_is_not_reused_after_the_newest_object_is_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.write(POD, put)
        await store.write(POD, remove)

    async with opened(tmp_path) as store:
        assert store.revision == 2
        assert (await store.write(POD, put)).rv == 3


async def test_after_a_restart_only_current_watches_may_resume(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.write(POD, put)
        await store.write(POD, put)
        await store.write(NODE, put)

    async with opened(tmp_path) as store:
        with pytest.raises(Compacted):
            store.watch("pods", since=1)
        with store.watch("pods", since=2) as subscription:
            await store.write(POD, remove)
            assert [change.rv for change in await subscription.next(1)] == [4]


async def test_floor_of_an_empty_resource_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.write(POD, put)
        await store.write(POD, remove)

    async with opened(tmp_path) as store:
        with pytest.raises(Compacted):
            store.watch("pods", since=1)


@pytest.mark.parametrize("count", [1, 2, 3, 127, 128, 129, 300])
def test_commit_group_of_any_size_is_stored(tmp_path: Path, count: int) -> None:
    disk = SqliteFile.open(tmp_path / DATABASE, Settings())
    keys = [Key("pods", "default", f"{number}") for number in range(count)]
    added = [Change("ADDED", Record(key, rv, b"{}"), None) for rv, key in enumerate(keys, 1)]
    gone = [
        Change("DELETED", Record(change.record.key, count + change.rv, b"{}"), change.record)
        for change in added[1:]
    ]
    disk.commit(added)
    if gone:
        disk.commit(gone)
    disk.close()

    loaded = SqliteFile.open(tmp_path / DATABASE, Settings()).load()

    assert loaded.records == {"pods": [added[0].record]}
    assert loaded.revision == loaded.last_revisions["pods"] == max(1, 2 * count if gone else 1)


def test_only_the_last_state_within_a_group_is_stored(tmp_path: Path) -> None:
    disk = SqliteFile.open(tmp_path / DATABASE, Settings())
    states = [Record(POD, rv, b"%d" % rv) for rv in range(1, 5)]
    disk.commit(
        [
            Change("ADDED", states[0], None),
            Change("DELETED", states[1], states[0]),
            Change("ADDED", states[2], None),
            Change("MODIFIED", states[3], states[2]),
        ]
    )

    assert disk.load().records == {"pods": [states[3]]}
    disk.close()


async def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    """In WAL mode only FULL syncs at each commit; the process tests look at the system calls themselves."""
    disk = SqliteFile.open(tmp_path / DATABASE, Settings())

    def value_of(pragma: str) -> object:
        return disk._connection.execute(f"PRAGMA {pragma}").fetchone()[0]

    assert value_of("synchronous") == 2
    assert value_of("journal_mode") == "wal"
    assert value_of("fullfsync") == value_of("checkpoint_fullfsync") == 1
    disk.close()


async def test_a_text_that_the_file_cannot_hold_fails_its_write_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(StorageUnavailable):
            await store.write(POD, lambda _, _rv: Draft(b"{}", {"app": "\ud800"}))
        assert (await store.write(POD, put)).rv == 2


async def test_commit_with_an_unknown_result_stops_writes_until_a_restart(tmp_path: Path) -> None:
    """The disk may report a failure and have stored the group all the same."""

    class FailingAfterCommit(sqlite3.Connection):
        fails = False

        def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
            cursor = super().execute(statement, values)
            if statement == sql.COMMIT and self.fails:
                raise sqlite3.OperationalError("disk I/O error")
            return cursor

    SqliteFile.open(tmp_path / DATABASE, Settings()).close()
    connection = sqlite3.connect(
        tmp_path / DATABASE, isolation_level=None, factory=FailingAfterCommit
    )
    disk = SqliteFile(connection)
    connection.fails = True
    with pytest.raises(StorageUnavailable, match="I/O"):
        disk.commit([Change("ADDED", Record(POD, 1, b"{}"), None)])
    connection.fails = False

    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="restart"):
            disk.commit([Change("ADDED", Record(POD, 2, b"{}"), None)])

    disk.close()
    assert SqliteFile.open(tmp_path / DATABASE, Settings()).load().revision == 1


async def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    await filled(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        connection.execute(sql.write_version(len(sql.MIGRATIONS) + 1))
        connection.commit()
    before = content(tmp_path)

    with pytest.raises(BadConfiguration, match=r"newer Bramley \(format 2, this one knows up to 1"):
        Store.open(tmp_path)

    assert content(tmp_path) == before


async def test_a_foreign_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
        connection.commit()
    before = content(tmp_path)

    with pytest.raises(BadConfiguration, match="another program"):
        Store.open(tmp_path)

    assert content(tmp_path) == before


@pytest.mark.parametrize("damage", ["header", "pages", "text"])
async def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    await filled(tmp_path)
    path = tmp_path / DATABASE
    whole = path.read_bytes()
    path.write_bytes(
        {
            "header": bytes(100) + whole[100:],
            "pages": whole[:4096] + b"\xff" * (len(whole) - 4096),
            "text": b"once upon a time there was no database\n" * 200,
        }[damage]
    )
    before = content(tmp_path)

    with pytest.raises(BadConfiguration, match=r"damaged .* left as it is"):
        Store.open(tmp_path)

    assert content(tmp_path) == before


async def test_damaged_file_and_its_unfinished_log_are_kept(tmp_path: Path) -> None:
    """Closing a SQLite connection folds the log into the file; a refused file must not be written like that."""
    await filled(tmp_path)
    folder = tmp_path / "crashed"
    folder.mkdir()
    with contextlib.closing(SqliteFile.open(tmp_path / DATABASE, Settings())) as disk:
        disk.commit([Change("ADDED", Record(NODE, 61, b"{}"), None)])
        for name, data in content(tmp_path).items():
            (folder / name).write_bytes(data)
    with (folder / DATABASE).open("r+b") as file:
        file.seek(4096 * 5)  # pods that the log does not rewrite
        file.write(b"\xff" * 50)
    before = content(folder)
    assert len(before[f"{DATABASE}-wal"]) > 4096

    with pytest.raises(BadConfiguration, match="damaged"):
        Store.open(folder)

    assert content(folder) == before


@pytest.mark.parametrize("left", [b"", None])
async def test_log_without_its_database_is_not_replayed_into_a_new_one(
    tmp_path: Path, left: bytes | None
) -> None:
    (tmp_path / f"{DATABASE}-wal").write_bytes(b"old changes")
    if left is not None:
        (tmp_path / DATABASE).write_bytes(left)
    before = content(tmp_path)

    with pytest.raises(BadConfiguration, match=r"its log .* is there"):
        Store.open(tmp_path)

    assert content(tmp_path) == before


def test_the_log_stays_bounded_however_much_is_written(tmp_path: Path) -> None:
    settings = Settings(checkpoint_pages=50, wal_limit_bytes=256 * 1024)
    sizes: list[int] = []

    with contextlib.closing(SqliteFile.open(tmp_path / DATABASE, settings)) as disk:
        for rv in range(1, 301):
            record = Record(Key("pods", "default", f"{rv % 10}"), rv, b"x" * 9000)
            disk.commit([Change("MODIFIED", record, None)])
            sizes.append((tmp_path / f"{DATABASE}-wal").stat().st_size)

    assert len(sizes) * 9000 > 2_000_000
    assert max(sizes) < 512 * 1024
