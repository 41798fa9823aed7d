"""Joined writes: nothing is lost, reordered or held back."""

from __future__ import annotations

import asyncio
from typing import cast

from bramley.apiserver.http.uvicorn_protocol import BufferedTransport


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
