"""The folder for files of tests without real processes: in memory, if this machine has a suitable folder there.

Thousands of tests make tens of thousands of small files that live for a moment. `python -m tools.memory_folder` prints the folder.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the name that Linux has for it
# A run has a few hundred megabytes at a time; containers often have less than that here.
ROOM = 2 << 30


def choose(folder: Path = IN_MEMORY, *, room: int = ROOM) -> str:
    """Return the folder in memory, or the usual one if it lacks space or programs cannot be started from it."""
    return str(folder) if _is_fit(folder, room) else tempfile.gettempdir()


def _is_fit(folder: Path, room: int) -> bool:
    try:
        seen = os.statvfs(folder)
    except OSError:
        return False
    starts_programs = not seen.f_flag & getattr(os, "ST_NOEXEC", 0)
    has_room = seen.f_bavail * seen.f_frsize >= room
    return has_room and starts_programs and os.access(folder, os.W_OK | os.X_OK)


if __name__ == "__main__":
    print(choose())
