"""The data folder belongs to one user and one process."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from bramley.apiserver.store import data_folder
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.store import Store
from bramley.base.errors import BadConfiguration
from tests.programs import run_program

INLINE = Settings(writer_thread=False)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_folder_and_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "store"

    async with Store.open(folder, INLINE):
        modes = {path.name: mode(path) for path in folder.iterdir()}

    assert mode(folder) == 0o700
    assert modes == {"lock": 0o600, "bramley.db": 0o600, "bramley.db-wal": 0o600}


def test_our_folder_is_made_private_again(tmp_path: Path) -> None:
    (tmp_path / data_folder.DATABASE).touch(0o644)
    tmp_path.chmod(0o755)

    asyncio.run(Store.open(tmp_path, INLINE).close())

    assert mode(tmp_path) == 0o700
    assert mode(tmp_path / data_folder.DATABASE) == 0o600


def test_a_folder_of_another_program_keeps_its_mode(tmp_path: Path) -> None:
    """`--data-dir /tmp` must not lock everybody out of /tmp."""
    (tmp_path / "letters").touch()
    tmp_path.chmod(0o755)

    with pytest.raises(BadConfiguration, match="holds other files"):
        Store.open(tmp_path, INLINE)

    assert mode(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    first = data_folder.lock_folder(tmp_path)
    source = (
        "import sys, pathlib; from bramley.apiserver.store import data_folder;"
        "data_folder.lock_folder(pathlib.Path(sys.argv[1]))"
    )

    second = run_program([sys.executable, "-c", source, str(tmp_path)], timeout=60)

    assert f"is in use by process {os.getpid()};" in second.stderr
    first.release()


async def test_a_folder_is_free_again_after_the_store_was_closed(tmp_path: Path) -> None:
    await Store.open(tmp_path, INLINE).close()
    await Store.open(tmp_path, INLINE).close()


async def test_a_folder_is_free_again_after_its_file_was_refused(tmp_path: Path) -> None:
    (tmp_path / data_folder.DATABASE).write_text("no database " * 1000)
    for _ in range(2):
        with pytest.raises(BadConfiguration, match="damaged"):
            Store.open(tmp_path, INLINE)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BadConfiguration, match=r"cannot be used: Not a directory; give this user"):
        Store.open(tmp_path / "file" / "store")


def test_a_database_that_is_a_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / data_folder.DATABASE).mkdir()

    with pytest.raises(BadConfiguration, match=r"bramley\.db cannot be opened"):
        Store.open(tmp_path)
