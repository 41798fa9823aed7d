"""One write per answer: uvicorn's HTTP protocol over a transport that joins what is written in one go.

uvicorn writes the head and the body of an answer apart, and each write is a TLS record and a system call of its own; joined,
an answer costs a quarter less. Nothing is held back longer than until the loop's next callback.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bramley.apiserver.auth import peers
from bramley.apiserver.auth.peers import Peer
from bramley.apiserver.http.exchange import PEER

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

    _peer: Peer | None = None
    # Since when the head of a request is awaited; 0 while one is answered.
    awaited_since: float = 0.0
    has_asked: bool = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection over a transport that joins writes; whose it is, TLS found out before this."""
        super().connection_made(Coalescing(transport, self.loop))  # type: ignore[arg-type]
        self.awaited_since = self.loop.time()
        self._peer = peers.of_certificate(transport.get_extra_info("peercert"))

    def on_message_begin(self) -> None:
        """Begin a request, and say whose connection it comes over."""
        super().on_message_begin()
        self.awaited_since = self.loop.time()
        if self._peer is not None:
            self.scope[PEER] = self._peer  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self.awaited_since = 0.0
        self.has_asked = True
        super().on_headers_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: kubectl asks for websockets to exec and to forward, and our answer refuses that."""

    def hang_up(self) -> None:
        """Close the connection without a word."""
        self.transport.abort()
