"""A data folder that cannot be written is refused in words that help."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.process.durability.namespaces import run_alone


def test_a_read_only_file_system_is_refused_clearly(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.process.durability.read_only", str(tmp_path)]

    output = run_alone(program).splitlines()

    assert output == [
        f"the data folder MOUNTED/{name} cannot be used: Read-only file system; give this user "
        "write access to it, or choose another one with --data-dir"
        for name in ("old", "new")
    ]
