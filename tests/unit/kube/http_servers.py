"""A server on a loopback socket with a handler of the test, which counts connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Handler = Callable[["ReceivedRequest", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as it came over the socket."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


@dataclass(slots=True)
class Server:
    """What came in, over how many sockets."""

    handler: Handler
    port: int = 0
    scheme: str = "http"
    sockets: int = 0
    closed: int = 0
    received: list[ReceivedRequest] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    certificates: list[object] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sockets += 1
        self.certificates.append(writer.get_extra_info("peercert"))
        try:
            while received := await receive(reader):
                self.received.append(received)
                await self.handler(received, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed += 1
            writer.close()


async def receive(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *lines = head.decode().strip().split("\r\n")
    pairs = [one.split(": ", 1) for one in lines]
    headers = [(key.lower(), value) for key, value in pairs]
    length = int(next((value for key, value in headers if key == "content-length"), "0"))
    return ReceivedRequest(line, headers, await reader.readexactly(length))


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(handler, scheme="https" if context else "http")
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


def plain(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK") -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


def chunk(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(body), body))


def chunked_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


async def eventually(true: Callable[[], bool], *, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)
