from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bramley.cli import main
from bramley.dispatch.store.sqlite import SqliteDatabase

USAGE = 2


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """Yield the file of a queue that another connection has open, with one account that is not in the file itself yet."""
    path = tmp_path / "dispatch.sqlite"
    SqliteDatabase.open(path, threaded=False)
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("INSERT INTO accounts (account, added_at) VALUES ('acme', 1)")
        writer.commit()
        yield path


def backup(database: str, out: Path) -> int:
    return main.run(["dispatch", "backup", "--database", database, "--out", str(out)])


def test_backup_has_everything_that_was_committed(database: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.sqlite"

    assert backup(f"sqlite:///{database}", out) == 0

    with contextlib.closing(sqlite3.connect(out)) as copy:
        assert copy.execute("SELECT account FROM accounts").fetchall() == [("acme",)]
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("url", "out", "expected"),
    [
        ("sqlite:///none.sqlite", "copy", "--database: none.sqlite does not exist"),
        ("postgresql://host/x", "copy", "--database must be sqlite:///FILE"),
        ("sqlite:///{database}", "dispatch.sqlite", "exists; choose another file"),
        ("sqlite:///{database}", "none/copy", "--out: "),
    ],
)
def test_impossible_backup_names_the_flag_and_writes_nothing(
    database: Path, capsys: pytest.CaptureFixture[str], url: str, out: str, expected: str
) -> None:
    before = sorted(database.parent.iterdir())

    assert backup(url.format(database=database), database.parent / out) == USAGE

    assert expected in capsys.readouterr().err
    assert sorted(database.parent.iterdir()) == before
