"""Faults as data: the commands that they apply to, and invalid ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bramley.sim.ssh.faults import Fault, FaultKind, Faults


def test_fault_applies_to_matching_commands_after_skip_at_most_times(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults.json")
    faults.set(Fault(do=FaultKind.HANG, match="*pfctl*", skip=1, times=2))
    commands = ["pfctl -s info", "true", "pfctl -e", "sudo pfctl -E", "pfctl -d"]

    affected = [text for text in commands if faults.take(FaultKind.HANG, text)]

    assert affected == ["pfctl -e", "sudo pfctl -E"]
    assert faults.take(FaultKind.SLOW, "pfctl -e") is None
    faults.set()
    assert not faults.has(FaultKind.HANG)


def test_changed_file_is_reloaded_and_removed_file_ends_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    faults = Faults(path)
    assert faults.take(FaultKind.SLOW) is None
    path.write_text(json.dumps([{"do": "slow", "bytes": 9, "times": 1}]))
    assert faults.take(FaultKind.SLOW) == Fault(do=FaultKind.SLOW, bytes=9, times=1)
    assert faults.take(FaultKind.SLOW) is None
    path.unlink()
    path.write_text(json.dumps([{"do": "refuse"}]))
    assert faults.take(FaultKind.REFUSE)
    path.unlink()
    assert faults.take(FaultKind.REFUSE) is None


def test_file_written_twice_in_one_clock_tick_is_reloaded(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    faults = Faults(path)
    found = []
    for text in ("[", json.dumps([{"do": "refuse"}])):
        path.write_text(text)
        os.utime(path, ns=(1, 1))
        found.append((bool(faults.file_error), faults.has(FaultKind.REFUSE)))

    assert found == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"do": "slow"}, "list"),
        (["slow"], "object"),
        ([{"do": "hnag"}], "hnag"),
        ([{"match": "*"}], "None"),
        ([{"do": "slow", "byte": 1}], "byte"),
        ([{"do": "slow", "bytes": "many"}], "many"),
    ],
)
def test_invalid_fault_is_reported(tmp_path: Path, content: Any, part: str) -> None:
    path = tmp_path / "faults.json"
    path.write_text(json.dumps(content))

    faults = Faults(path)

    assert part in faults.file_error
    assert str(path) in faults.file_error
    assert faults.take(FaultKind.SLOW) is None
