"""A command on a Mac ends by its exit code, by an error of the connection, or by a cancellation."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bramley.host.ssh.process import RemoteProcess


class LostReader:
    """An output whose connection is lost at the moment when its reader is cancelled."""

    async def read(self, _size: int) -> bytes:
        try:
            return await asyncio.Future[bytes]()
        except asyncio.CancelledError:
            raise ConnectionResetError("connection lost") from None


class LostProcess:
    def __init__(self) -> None:
        self.stdout = self.stderr = LostReader()


async def test_cancellation_is_not_hidden_by_a_lost_connection() -> None:
    process = RemoteProcess(cast("Any", None), cast("Any", LostProcess()), max_bytes=10)

    async def interact(_: RemoteProcess) -> None:
        await asyncio.sleep(0)

    running = asyncio.create_task(process.communicate(interact))
    await asyncio.sleep(1)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
