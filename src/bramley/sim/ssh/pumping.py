"""Bytes between a channel of SSH and the files of a process: in blocks, with back pressure, at the speed of the line.

A file is a pipe's end or a terminal's own side. A terminal whose last program is gone answers with an error instead of an
end, which is the same here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """How many bytes a second the line carries; None: as many as come."""

    bytes_per_second: int | None = None

    @property
    def block(self) -> int:
        """Return how much is taken at once: a slow line delivers evenly."""
        if self.bytes_per_second is None:
            return BLOCK
        return max(1, min(BLOCK, self.bytes_per_second // 10))

    async def carry(self, count: int) -> None:
        """Wait as long as these bytes are on the line."""
        if self.bytes_per_second is not None:
            await asyncio.sleep(count / self.bytes_per_second)


class File:
    """One end of a pipe, or of a terminal, that never makes anybody else wait."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        os.set_blocking(number, False)

    async def read(self, most: int) -> bytes:
        """Return what has come, nothing at the end."""
        while self._is_open:
            try:
                return os.read(self._number, most)
            except BlockingIOError:
                await self._until(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                return b""
        return b""

    async def write(self, block: bytes) -> bool:
        """Write all of it; false if nobody reads it any more."""
        left = memoryview(block)
        while left and self._is_open:
            try:
                left = left[os.write(self._number, left) :]
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer)
            except OSError:
                return False
        return self._is_open

    def close(self) -> None:
        """Let go of it, also for one who waits on it; the other side sees the end."""
        if self._is_open:
            self._is_open = False
            self._woken.set()
            self._loop.remove_reader(self._number)
            self._loop.remove_writer(self._number)
            os.close(self._number)

    async def _until(
        self,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], object],
    ) -> None:
        self._woken.clear()
        watch(self._number, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if self._is_open:
                unwatch(self._number)


async def bring(file: File, put: Callable[[bytes], Awaitable[None]], line: Line) -> None:
    """Bring what a process writes to the other side, until its end; the file is closed then."""
    try:
        while block := await file.read(line.block):
            await line.carry(len(block))
            await put(block)
    finally:
        file.close()
