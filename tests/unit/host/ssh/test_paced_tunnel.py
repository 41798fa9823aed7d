"""Flow control below an SSH connection: senders wait while the socket accepts no data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bramley.host.ssh.connect import WRITE_BUFFER_BYTES, PacedTunnel


class Protocol:
    """The protocol of the SSH library, which has no flow control."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.lost: list[Exception | None] = []

    def data_received(self, block: bytes) -> None:
        self.received.append(block)

    def pause_writing(self) -> None:
        raise AssertionError("not forwarded")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Network:
    """A network that connects and can pause writing."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self.high = 0

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Network, Any]:
        assert (host, port) == ("mac", 22)
        self.protocol = factory()
        return self, self.protocol

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high


async def test_drain_waits_while_writing_is_paused() -> None:
    network, tunnel = Network(), PacedTunnel()
    await tunnel.drain()
    tunnel = PacedTunnel(network)
    _, inner = await tunnel.create_connection(Protocol, "mac", 22)
    assert isinstance(inner, Protocol)
    assert network.high == WRITE_BUFFER_BYTES
    await tunnel.drain()

    network.protocol.pause_writing()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await tunnel.drain()

    network.protocol.resume_writing()
    await tunnel.drain()


async def test_lost_connection_ends_drain() -> None:
    network = Network()
    tunnel = PacedTunnel(network)
    _, inner = await tunnel.create_connection(Protocol, "mac", 22)
    network.protocol.data_received(b"x")
    network.protocol.pause_writing()
    async with asyncio.TaskGroup() as group:
        group.create_task(tunnel.drain())
        await asyncio.sleep(1)
        network.protocol.connection_lost(None)

    assert (inner.received, inner.lost) == ([b"x"], [None])
