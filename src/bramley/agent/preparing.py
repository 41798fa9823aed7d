"""The agent's folders, made at its start; one that cannot be made is told with its flag."""

from __future__ import annotations

from pathlib import Path

from bramley.agent.settings import Folders
from bramley.api.names import flags
from bramley.api.names.flags import Flag
from bramley.base import errors

PRIVATE = 0o700
# Where people look for logs; the files in it are private.
OPEN = 0o755


def make(folders: Folders) -> None:
    """Make the folders that are not there."""
    _make(folders.state, PRIVATE, flags.STATE_DIR)
    _make(folders.user_data, PRIVATE, flags.USERDATA_DIR)
    _make(folders.vm_logs, OPEN, flags.VM_LOG_DIR)


def _make(folder: Path, mode: int, flag: Flag) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        raise errors.BadConfiguration(
            f"{flag.name} {folder}: {error.strerror}; give a folder that this user may write"
        ) from error
