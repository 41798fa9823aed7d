"""The bytes below an SSH connection, with the brake that the library does not pull.

It hands to the socket whatever the other side's window lets through, megabytes at a time, even if the network takes none of it;
a hundred slow hosts would hold that much each. Whoever sends much waits here for `room` before each block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

HIGH_WATER = 128 * 1024


class Wire:
    """Opens a socket, or a channel through a jump host, and knows whether it takes more."""

    def __init__(self, jump: Any = None) -> None:
        self._jump = jump
        self._paced: _Paced | None = None

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, Any]:
        """Connect, as the library asks of what it tunnels through."""
        through: Any = self._jump or asyncio.get_running_loop()
        transport, self._paced = await through.create_connection(
            lambda: _Paced(factory()), host, port
        )
        transport.set_write_buffer_limits(high=HIGH_WATER)
        return transport, self._paced.inner

    async def room(self) -> None:
        """Wait until most of what was written has left."""
        if self._paced is not None:
            await self._paced.room.wait()


class _Paced:
    """Stands between a transport and the library's protocol: everything passes, and what it ignores is heard."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.room = asyncio.Event()
        self.room.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.room.set()
        self.inner.connection_lost(error)
