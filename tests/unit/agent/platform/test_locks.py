"""The `flock` of a folder: held against other processes, released explicitly or at the end, and never inherited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bramley.agent.platform import locks
from tests.programs import run_program

TRY = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDONLY)
try:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(3)
"""
HOLD = TRY + "print('held', flush=True); sys.stdin.read()"


def is_free(folder: Path) -> bool:
    done = run_program([sys.executable, "-ISE", "-c", TRY, str(folder)])
    assert done.returncode in {0, 3}
    return done.returncode == 0


def test_lock_of_a_folder_is_held_until_it_is_released(tmp_path: Path) -> None:
    release = locks.lock_folder(tmp_path)
    assert release is not None
    with subprocess.Popen(["sleep", "60"]) as child:
        assert not is_free(tmp_path)
        assert locks.lock_folder(tmp_path) is None
        release()

        # Not even a program that was started meanwhile keeps it.
        assert is_free(tmp_path)
        child.kill()


def test_lock_of_another_process_is_respected(tmp_path: Path) -> None:
    argv = [sys.executable, "-ISE", "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert locks.lock_folder(tmp_path) is None
        other.kill()

    release = locks.lock_folder(tmp_path)
    assert release is not None
    release()


def test_missing_folder_file_and_link_have_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")

    for name in ("missing", "file", "link"):
        assert locks.lock_folder(tmp_path / name) is None
    assert is_free(tmp_path / "folder")
