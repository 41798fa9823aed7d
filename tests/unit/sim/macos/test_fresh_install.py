"""An interrupted installation of a simulated Mac is not a Mac, and other files are kept."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac


def cut_short(root: Path) -> None:
    """Begin to make a Mac, which has no room for its files."""
    with pytest.raises(OSError, match="No space") as raised:
        Mac.create(root, settings=Settings(free_bytes=0))
    assert raised.value.errno == errno.ENOSPC
    assert (root / "Library").exists()


def test_interrupted_installation_begins_again(tmp_path: Path) -> None:
    cut_short(tmp_path / "mac")
    (tmp_path / "mac/Library/half").touch()
    assert not Mac.is_complete(tmp_path / "mac")
    assert Mac.can_be_created(tmp_path / "mac")

    again = Mac.create(tmp_path / "mac")

    assert Mac.is_complete(tmp_path / "mac")
    assert again.snapshot() == Mac.create(tmp_path / "another").snapshot()


def test_files_in_the_state_folder_survive_an_interrupted_installation(tmp_path: Path) -> None:
    faults = tmp_path / "mac/.mac/faults.json"
    faults.parent.mkdir(parents=True)
    faults.write_text("[]")
    cut_short(tmp_path / "mac")

    Mac.create(tmp_path / "mac")

    assert faults.read_text() == "[]"


def test_mac_may_be_made_only_in_an_empty_folder(tmp_path: Path) -> None:
    assert Mac.can_be_created(tmp_path / "missing")
    assert Mac.can_be_created(tmp_path)
    # As a process leaves it that is killed at its very first step.
    (tmp_path / ".mac").mkdir()
    (tmp_path / ".mac/served").touch()
    assert Mac.can_be_created(tmp_path)

    (tmp_path / "letter.txt").touch()
    assert not Mac.can_be_created(tmp_path)
