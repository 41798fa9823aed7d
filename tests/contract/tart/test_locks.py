"""Real locks between processes, and the struct flock of both systems."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bramley.sim.tart.process import Locks
from tests.programs import run_program

HOLD = """
import sys
sys.path.insert(0, {root!r})
from bramley.sim.tart.process import Locks
locks = Locks()
print(locks.{kind}({path!r}), flush=True)
sys.stdin.read()
"""
ROOT = str(Path(__file__).parents[3] / "src")


def holding(kind: str, path: Path) -> subprocess.Popen[str]:
    code = HOLD.format(root=ROOT, kind=kind, path=str(path))
    process = subprocess.Popen(
        [sys.executable, "-ISE", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "True\n"
    return process


def test_holder_of_a_lock_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    locks = Locks()
    assert locks.holder(str(file)) is None

    with holding("lock", file) as other:
        assert locks.holder(str(file)) == other.pid
        assert not locks.lock(str(file))
        other.communicate("")

    assert locks.holder(str(file)) is None


def test_query_of_our_own_lock_does_not_release_it(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    locks = Locks()
    assert locks.lock(str(file))

    assert locks.holder(str(file)) is None

    code = HOLD.format(root=ROOT, kind="lock", path=str(file)).replace("sys.stdin.read()", "")
    done = run_program([sys.executable, "-ISE", "-c", code], check=True)
    assert done.stdout == "False\n"


def test_flock_is_visible_to_others_and_moves_with_its_descriptor(tmp_path: Path) -> None:
    locks = Locks()
    with holding("flock", tmp_path) as other:
        assert locks.is_flocked(str(tmp_path))
        assert not locks.flock(str(tmp_path))
        other.communicate("")

    assert locks.flock(str(tmp_path))
    descriptor = locks.hand_over(str(tmp_path))
    assert Locks().is_flocked(str(tmp_path))
    os.close(descriptor)
    assert not Locks().is_flocked(str(tmp_path))


def test_missing_file_cannot_be_locked(tmp_path: Path) -> None:
    assert not Locks().flock(str(tmp_path / "nothing"))
    assert not Locks().is_flocked(str(tmp_path / "nothing"))
    assert Locks().holder(str(tmp_path / "nothing")) is None
