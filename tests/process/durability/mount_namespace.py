"""A separate mount namespace for a program that mounts: nothing stays mounted, and no privilege is needed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

from tests.programs import run_program

UNSHARE = ("unshare", "--map-root-user", "--mount")


def run_in_namespace(argv: Sequence[str]) -> str:
    """Run a program in its own mount namespace and return what it printed; skip where the kernel forbids it."""
    if os.environ.get("CI") != "true" and not _is_allowed():
        pytest.skip(f"this machine forbids {' '.join(UNSHARE)}")
    done = run_program([*UNSHARE, *argv])
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_allowed() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
