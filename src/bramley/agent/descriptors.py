"""Waiting for a descriptor of the system: a pipe that can be read or written, or the handle of a process that ends."""

from __future__ import annotations

import asyncio


async def readable(handle: int) -> None:
    """Return when the descriptor can be read, or its other side is closed."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(handle, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(handle)


async def writable(handle: int) -> None:
    """Return when the descriptor can be written, or its other side is closed."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_writer(handle, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_writer(handle)
