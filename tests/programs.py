"""Runs programs to their end and returns what they print."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run_program(
    command: Sequence[str | Path], *, check: bool = False, timeout: float = 180, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit code and output."""
    return subprocess.run(
        command, capture_output=True, text=True, check=check, timeout=timeout, **options
    )
