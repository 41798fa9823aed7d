"""Signals to process groups."""

from __future__ import annotations

import contextlib
import os
import signal


def send(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group; it may be gone, which macOS tells as a lack of permission."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
