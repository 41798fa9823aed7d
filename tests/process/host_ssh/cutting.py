"""A line that breaks: passes bytes between a client and a server, and none any more after so many to the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """What goes through to which server's port, and after how many bytes towards it the line breaks; None: never."""

    server: int
    port: int = 0
    breaks_after: int | None = None
    connections: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Tell whether somebody still holds a connection."""
        return not all(writer.is_closing() for writer in self._writers)

    def cut(self) -> None:
        """Break every connection now."""
        for writer in self._writers:
            writer.transport.abort()

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_server: bool
    ) -> None:
        """Carry one direction until it ends."""
        passed = 0
        with contextlib.suppress(OSError):
            while block := await reader.read(16 * 1024):
                writer.write(block)
                await writer.drain()
                passed += len(block)
                if to_server and self.breaks_after is not None and passed > self.breaks_after:
                    self.cut()
        writer.transport.abort()

    def keep(self, *writers: asyncio.StreamWriter) -> None:
        """Remember what a cut has to break."""
        self.connections += 1
        self._writers += writers

    async def gone(self) -> None:
        """Wait until nothing is open any more."""
        self.cut()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def to(port: int) -> AsyncIterator[Line]:
    """Offer a line to a port of this machine; new connections go to whichever port it names then."""
    line = Line(port)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", line.server)
        line.keep(writer, there_writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(line.carry(reader, there_writer, to_server=True))
            group.create_task(line.carry(there_reader, writer, to_server=False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    async with server:
        yield line
        await line.gone()
