"""A mount namespace of its own for a program that mounts: nothing is left mounted, and no privilege is needed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

ALONE = ("unshare", "--map-root-user", "--mount")


def run_alone(argv: Sequence[str]) -> str:
    """Run a program in its own mount namespace and return what it printed; skip where the kernel forbids it."""
    if os.environ.get("CI") != "true" and not _is_allowed():
        pytest.skip(f"this machine forbids {' '.join(ALONE)}")
    done = subprocess.run([*ALONE, *argv], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_allowed() -> bool:
    try:
        return subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
