"""The brake below an SSH connection: who sends much waits while the socket takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bramley.host.ssh.wire import HIGH_WATER, Wire


class Protocol:
    """The library's side, which does not care."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.lost: list[Exception | None] = []

    def data_received(self, block: bytes) -> None:
        self.heard.append(block)

    def pause_writing(self) -> None:
        raise AssertionError("it is not asked")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Network:
    """What connects, and then pushes back."""

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


async def test_room_is_there_until_the_socket_says_otherwise() -> None:
    network, wire = Network(), Wire()
    await wire.room()
    wire = Wire(network)
    _, inner = await wire.create_connection(Protocol, "mac", 22)
    assert isinstance(inner, Protocol)
    assert network.high == HIGH_WATER
    await wire.room()

    network.protocol.pause_writing()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await wire.room()

    network.protocol.resume_writing()
    await wire.room()


async def test_who_waits_for_room_hears_of_the_end_of_the_line() -> None:
    network = Network()
    wire = Wire(network)
    _, inner = await wire.create_connection(Protocol, "mac", 22)
    network.protocol.data_received(b"x")
    network.protocol.pause_writing()
    async with asyncio.TaskGroup() as group:
        group.create_task(wire.room())
        await asyncio.sleep(1)
        network.protocol.connection_lost(None)

    assert (inner.heard, inner.lost) == ([b"x"], [None])
