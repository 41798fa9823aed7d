"""A data folder on a read-only file system is refused with a helpful message."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.process.durability.mount_namespace import run_in_namespace


def test_a_read_only_file_system_is_refused_clearly(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.process.durability.read_only", str(tmp_path)]

    output = run_in_namespace(program).splitlines()

    assert output == [
        f"the data folder MOUNTED/{name} cannot be used: Read-only file system; give this user "
        "write access to it, or choose another one with --data-dir"
        for name in ("old", "new")
    ]
