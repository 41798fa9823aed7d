"""One write per answer: uvicorn's HTTP protocol over a transport that joins what is written in one go.

uvicorn writes the head and the body of an answer apart, and each write is a TLS record and a system call of its own; joined,
an answer costs a quarter less. Nothing is held back longer than until the loop's next callback.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Above this, copying costs more than another record.
_JOINED_BYTES = 64 * 1024


class Coalescing:
    """A transport that joins small writes; everything else goes to the transport below."""

    __slots__ = ("_below", "_loop", "_waiting")

    def __init__(self, below: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._below = below
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Write soon, together with what else is written until then."""
        if len(data) > _JOINED_BYTES:
            self._flush()
            self._below.write(data)
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def close(self) -> None:
        """Write what waits, then close."""
        self._flush()
        self._below.close()

    def _flush(self) -> None:
        if self._waiting:
            joined, self._waiting = b"".join(self._waiting), []
            if not self._below.is_closing():
                self._below.write(joined)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


class CoalescingProtocol(HttpToolsProtocol):
    """uvicorn's protocol; a subclass, because that is what uvicorn takes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection over a transport that joins writes."""
        super().connection_made(Coalescing(transport, self.loop))  # type: ignore[arg-type]
