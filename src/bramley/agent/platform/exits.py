"""Hearing of a process's end at once, whether or not it is our child: a pidfd on Linux, a kqueue on macOS.

Both become readable when the process ends, also while nobody has reaped it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections.abc import Iterator

from bramley.agent import descriptors

POLL_SECONDS = 0.05


async def gone(pid: int) -> None:
    """Return when the process has ended."""
    try:
        with _watched(pid) as handle:
            await descriptors.readable(handle)
    except ProcessLookupError:
        return
    except OSError:
        # No descriptor is free, or the system knows no such call: then looking has to do.
        await _look(pid)


async def _look(pid: int) -> None:
    while _exists(pid):  # noqa: ASYNC110  nobody tells
        await asyncio.sleep(POLL_SECONDS)


def _exists(pid: int) -> bool:
    """Tell whether there is such a process; a child of ours that ended is no more, though its entry is still there."""
    with contextlib.suppress(ChildProcessError):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if sys.platform == "darwin":

    @contextlib.contextmanager
    def _watched(pid: int) -> Iterator[int]:
        queue = select.kqueue()
        try:
            ending = select.kevent(
                pid,
                filter=select.KQ_FILTER_PROC,
                flags=select.KQ_EV_ADD | select.KQ_EV_ONESHOT,
                fflags=select.KQ_NOTE_EXIT,
            )
            queue.control([ending], 0)
            yield queue.fileno()
        finally:
            queue.close()

else:

    @contextlib.contextmanager
    def _watched(pid: int) -> Iterator[int]:
        handle = os.pidfd_open(pid)
        try:
            yield handle
        finally:
            os.close(handle)
