"""Waits for descriptors, and for the exit of any process, child or not: with a pidfd on Linux and a kqueue on macOS.

Both become readable when the process exits, even before it is reaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator

from bramley.agent import platform

POLL_SECONDS = 0.05


async def wait_readable(handle: int) -> None:
    """Return when the descriptor can be read, or its other side is closed."""
    loop = asyncio.get_running_loop()
    await _wait(handle, loop.add_reader, loop.remove_reader)


async def wait_writable(handle: int) -> None:
    """Return when the descriptor can be written, or its other side is closed."""
    loop = asyncio.get_running_loop()
    await _wait(handle, loop.add_writer, loop.remove_writer)


async def _wait(
    handle: int,
    add: Callable[[int, Callable[[], None]], None],
    remove: Callable[[int], object],
) -> None:
    event = asyncio.Event()
    add(handle, event.set)
    try:
        await event.wait()
    finally:
        remove(handle)


async def wait_for_exit(pid: int) -> None:
    """Return when the process has ended."""
    try:
        with _exit_descriptor(pid) as handle:
            await wait_readable(handle)
    except ProcessLookupError:
        return
    except OSError:
        # No descriptor is free, or the system does not support the call.
        await _poll(pid)


async def _poll(pid: int) -> None:
    system = platform.current()
    while system.start_time(pid) is not None:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(POLL_SECONDS)


if sys.platform == "darwin":

    @contextlib.contextmanager
    def _exit_descriptor(pid: int) -> Iterator[int]:
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
    def _exit_descriptor(pid: int) -> Iterator[int]:
        handle = os.pidfd_open(pid)
        try:
            yield handle
        finally:
            os.close(handle)
