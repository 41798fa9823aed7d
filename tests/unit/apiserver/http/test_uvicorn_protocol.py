"""Joined writes: nothing is lost, reordered or held back. Connections: which of them wait for their client."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from bramley.apiserver.http.uvicorn_protocol import BufferedHttpProtocol, BufferedTransport


class Wire:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> str:
        return f"<{name}>"


class Connection(Wire):
    """A transport without TLS and without a socket."""

    def get_extra_info(self, _name: str) -> Any:
        return None


def over(wire: Wire) -> BufferedTransport:
    return BufferedTransport(cast("asyncio.Transport", wire), asyncio.get_running_loop())


async def test_headers_and_body_are_one_write() -> None:
    wire = Wire()
    transport = over(wire)

    transport.write(b"head")
    transport.write(b"body")
    await asyncio.sleep(0)
    transport.write(b"next")
    await asyncio.sleep(0)

    assert wire.written == [b"headbody", b"next"]


async def test_a_large_piece_is_not_copied_and_not_reordered() -> None:
    wire = Wire()
    transport = over(wire)
    large = b"x" * 100_000

    transport.write(b"head")
    transport.write(large)
    transport.write(b"tail")
    await asyncio.sleep(0)

    assert wire.written == [b"head", large, b"tail"]
    assert wire.written[1] is large


async def test_close_flushes_buffered_data() -> None:
    wire = Wire()
    transport = over(wire)

    transport.write(b"last words")
    transport.close()
    await asyncio.sleep(0)

    assert (wire.written, wire.closed) == ([b"last words"], True)


async def test_nothing_is_written_to_a_closed_transport() -> None:
    wire = Wire()
    transport = over(wire)

    transport.write(b"too late")
    wire.closed = True
    await asyncio.sleep(0)

    assert wire.written == []
    assert transport.get_extra_info("peername") == "<peername>"


async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer without reading the body."""
    await send(
        {"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body"})


@pytest.mark.parametrize(("body", "waits"), [(b"ab", False), (b"a", True)])
async def test_connection_waits_for_the_rest_of_an_answered_request(
    body: bytes, waits: bool
) -> None:
    config = uvicorn.Config(refuse, ws="none", log_config=None)
    config.load()
    protocol = BufferedHttpProtocol(config, ServerState(), {})
    wire = Connection()
    await asyncio.sleep(1)
    protocol.connection_made(cast("asyncio.Transport", wire))

    protocol.data_received(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n" + body)
    await asyncio.sleep(0.01)

    assert b"".join(wire.written).startswith(b"HTTP/1.1 401 ")
    assert bool(protocol.waiting_since) == waits
    protocol.connection_lost(None)
