"""A minimal HTTP client, so that it is certain what was sent: no library may repeat a write.

One connection serves one client; it raises `Unsent` when the request cannot have reached the server, and `Lost` when it may have.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Self

# A killed server closes its connections at once; this timeout is for a machine that stalls.
ANSWER_WITHIN = 180.0


class Unsent(Exception):
    """The server did not get the request."""


class Lost(Exception):
    """The answer did not come; whether the server acted is unknown."""


@dataclass(slots=True)
class Access:
    """Address and credentials of the server."""

    port: int
    token: str
    context: ssl.SSLContext
    # Clients of a server that is down wait for it here, since repeated requests would slow its start.
    is_up: asyncio.Event = field(default_factory=asyncio.Event)


class Connection:
    """One connection that is opened when needed and opened again after it broke; use it as a context manager."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send one request and return the answer's status and JSON."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                reader = await self._sent(method, path, body)
                status, headers = await _head(reader)
                content = b"".join([part async for part in _body(reader, headers)])
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.close()
            raise Lost(str(error)) from error
        return status, json.loads(content)

    async def lines(self, path: str) -> AsyncGenerator[tuple[int, bytes], None]:
        """Return the answer's status with each of its lines, until the stream ends or breaks."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                reader = await self._sent("GET", path, None)
                status, headers = await _head(reader)
            rest = b""
            async for part in _body(reader, headers):
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    yield status, line
            if rest:
                yield status, rest
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            raise Lost(str(error)) from error
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._writer:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _sent(self, method: str, path: str, body: Any) -> asyncio.StreamReader:
        if self._reader is None or self._writer is None:
            try:
                self._reader, self._writer = await asyncio.open_connection(
                    "127.0.0.1", self._access.port, ssl=self._access.context
                )
            except (OSError, EOFError) as error:
                raise Unsent(str(error)) from error
        payload = b"" if body is None else json.dumps(body).encode()
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self._access.token}\r\nContent-Length: {len(payload)}\r\n\r\n"
            "".encode()
            + payload
        )
        await self._writer.drain()
        return self._reader


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in rest if line)
    return int(first.split(" ")[1]), headers


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(headers.get("content-length", "0")))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
