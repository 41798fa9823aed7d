"""The guest's own log, kept beside tart's when the folders of its VM go: who looks for why a job failed comes later."""

from __future__ import annotations

import os
from pathlib import Path

from bramley.agent.guest.folders import UserData
from bramley.agent.ledger import files
from bramley.api.names import guest
from bramley.base import log

logger = log.get(__name__)

LONGEST_BYTES = 1024 * 1024


def kept_path(logs: Path, vm: str) -> Path:
    """Return where the log of a VM's guest is kept; it is cut and removed with the logs around it."""
    return logs / f"{vm}.guest.log"


def keep_log(folders: UserData, vm: str, logs: Path) -> None:
    """Copy the end of the guest's log, with its date; done if there is none. A disk that refuses keeps nobody waiting."""
    file = folders.open_guests_file(vm, guest.LOG_FILE)
    if file is None:
        return
    with file:
        facts = os.fstat(file.fileno())
        start = max(0, facts.st_size - LONGEST_BYTES)
        content = os.pread(file.fileno(), LONGEST_BYTES, start)
    kept = kept_path(logs, vm)
    try:
        logs.mkdir(parents=True, exist_ok=True)
        files.replace(kept, content, durable=False)
        # A guest dates its files as it likes; one of the future would never grow old.
        changed = min(max(facts.st_mtime_ns, 0), kept.stat().st_mtime_ns)
        os.utime(kept, ns=(changed, changed))
    except OSError as error:
        logger.warning("A guest's log cannot be kept", vm=vm, reason=str(error))
