"""A TCP proxy that can drop its connections after a number of bytes towards the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Proxy:
    """The port of the server, and the number of bytes towards it after which connections are dropped; None: never."""

    server: int
    port: int = 0
    drop_after: int | None = None
    connections: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Return whether any connection is open."""
        return not all(writer.is_closing() for writer in self._writers)

    def drop(self) -> None:
        """Drop all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_server: bool
    ) -> None:
        """Forward one direction until it ends."""
        forwarded = 0
        with contextlib.suppress(OSError):
            while block := await reader.read(16 * 1024):
                writer.write(block)
                await writer.drain()
                forwarded += len(block)
                if to_server and self.drop_after is not None and forwarded > self.drop_after:
                    self.drop()
        writer.transport.abort()

    def add(self, *writers: asyncio.StreamWriter) -> None:
        """Add a connection."""
        self.connections += 1
        self._writers += writers

    async def close(self) -> None:
        """Drop all connections, and wait until they are closed."""
        self.drop()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def to(port: int) -> AsyncIterator[Proxy]:
    """Run a proxy to a port of this machine; `server` may be changed for new connections."""
    proxy = Proxy(port)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", proxy.server)
        proxy.add(writer, server_writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(proxy.forward(reader, server_writer, to_server=True))
            group.create_task(proxy.forward(server_reader, writer, to_server=False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        await proxy.close()
