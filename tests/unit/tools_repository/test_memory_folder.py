"""Where fast tests put their files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tools import memory_folder


def test_folder_with_enough_space_is_used(tmp_path: Path) -> None:
    if os.statvfs(tmp_path).f_flag & getattr(os, "ST_NOEXEC", 0):
        pytest.skip("no program starts from the folder of this run")

    assert memory_folder.choose(tmp_path, room=1) == str(tmp_path)


@pytest.mark.parametrize(("name", "room"), [("none", 1), ("", 1 << 62)], ids=["missing", "full"])
def test_default_temporary_folder_is_used_otherwise(tmp_path: Path, name: str, room: int) -> None:
    assert memory_folder.choose(tmp_path / name, room=room) == tempfile.gettempdir()
