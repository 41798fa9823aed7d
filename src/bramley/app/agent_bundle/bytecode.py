"""Compiled modules for an archive: an agent starts from them at once, and never writes into the folder it runs from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bramley.app.agent_bundle import compile_tree
from bramley.base.errors import BadConfiguration

SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
_WITHIN_SECONDS = 300
# Sets are laid out by the hashes of what they hold.
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}


def add(folder: Path, python: str) -> None:
    """Compile every module in a folder for a series of Python, which has to be our own."""
    if python != SERIES:
        raise BadConfiguration(
            f"this is Python {SERIES}, which cannot compile for {python}; run the same command with python{python}"
        )
    command = [sys.executable, "-s", "-S", "-P", "-B", compile_tree.__file__, str(folder)]
    done = subprocess.run(  # noqa: S603 - our own interpreter and our own file
        command, env=_ENVIRONMENT, capture_output=True, timeout=_WITHIN_SECONDS, check=False
    )
    if done.returncode != 0:
        told = done.stderr.decode(errors="replace").strip()[-500:]
        raise BadConfiguration(f"the modules in {folder} could not be compiled: {told}")
