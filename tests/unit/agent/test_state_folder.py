from __future__ import annotations

import os
from pathlib import Path

import pytest

from bramley.agent import state_folder
from bramley.agent.settings import Folders
from bramley.base import errors


def test_second_agent_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    lock = tmp_path / "agent.lock"
    with (
        state_folder.hold_lock(lock),
        pytest.raises(state_folder.AnotherAgent, match=f"process {os.getpid()}"),
        state_folder.hold_lock(lock),
    ):
        pass


def test_lock_is_released_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "agent.lock"
    with state_folder.hold_lock(lock):
        pass
    with state_folder.hold_lock(lock):
        assert lock.stat().st_mode & 0o777 == 0o600


def test_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "agent.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"), state_folder.hold_lock(tmp_path / "agent.lock"):
        pass


def test_folders_are_made_private(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "a/state", tmp_path / "a/data", tmp_path / "a/logs")

    state_folder.make_folders(folders)

    assert folders.state.stat().st_mode & 0o777 == 0o700
    assert folders.user_data.stat().st_mode & 0o777 == 0o700


def test_error_for_an_unusable_folder_names_its_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folders = Folders(tmp_path / "state", tmp_path / "file" / "data", tmp_path / "logs")

    with pytest.raises(errors.BadConfiguration, match="--userdata-dir"):
        state_folder.make_folders(folders)
