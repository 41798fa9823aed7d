"""Metrics of guests through the Node: two loopback addresses stand for the Node and the guest."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from bramley.agent.metrics_proxy import PRIVATE_NETWORKS, MetricsProxy, scrape_port
from bramley.agent.platform import interfaces
from bramley.agent.platform.interfaces import Interface
from bramley.api.meta import ObjectMeta
from bramley.api.pod import Pod
from bramley.base.clock import SystemClock

NODE, GUEST = "127.0.0.1", "127.0.0.2"
BODY = b"up 1\n"


def a_pod(port: int | str, wants: str = "true") -> Pod:
    annotations = {"prometheus.io/scrape": wants, "prometheus.io/port": str(port)}
    return Pod(metadata=ObjectMeta(name="p", annotations=annotations))


@dataclass
class World:
    """The Node's side, and the requests that the guest received."""

    port: int
    proxy: MetricsProxy
    vms: set[str]
    lookups: list[bytes] = field(default_factory=list)
    finds: int = 0

    async def send(self, line: str = "GET /metrics HTTP/1.1", sender: str = NODE) -> str:
        reader, writer = await asyncio.open_connection(NODE, self.port, local_addr=(sender, 0))
        writer.write(f"{line}\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        return answer.decode()


@asynccontextmanager
async def a_world(*, allowed: tuple[str, ...] = (), has_guest: bool = True) -> AsyncIterator[World]:
    with socket.socket() as free:
        free.bind((GUEST, 0))
        port = free.getsockname()[1]

    async def find_address(_vm: str) -> str:
        world.finds += 1
        return GUEST

    vms = {"vm"}
    proxy = MetricsProxy(NODE, find_address, lambda: vms, SystemClock(), allowed)
    world = World(port, proxy, vms)

    async def guest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        world.lookups.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY)
        writer.close()

    server = await asyncio.start_server(guest, GUEST, port) if has_guest else None
    try:
        yield world
    finally:
        proxy.close()
        if server is not None:
            server.close()


@pytest.mark.real_time
async def test_guest_that_opts_in_is_scraped_through_the_node() -> None:
    async with a_world() as world:
        assert await world.proxy.pod_address(a_pod(world.port), "vm", GUEST) == NODE

        answer = await world.send()

        assert answer.startswith("HTTP/1.1 200 OK")
        assert answer.endswith("up 1\n")
        assert world.lookups[0].startswith(b"GET /metrics HTTP/1.1\r\n")


@pytest.mark.real_time
async def test_only_metrics_requests_are_forwarded() -> None:
    async with a_world() as world:
        await world.proxy.pod_address(a_pod(world.port), "vm", GUEST)

        assert "404" in await world.send("GET /etc/passwd HTTP/1.1")
        assert "404" in await world.send("GET /metrics/../x HTTP/1.1")
        assert "405" in await world.send("POST /metrics HTTP/1.1")
        assert world.lookups == []


@pytest.mark.real_time
async def test_clients_outside_the_allowed_networks_are_refused() -> None:
    async with a_world(allowed=("127.0.0.1/32",)) as world:
        await world.proxy.pod_address(a_pod(world.port), "vm", GUEST)

        assert "403" in await world.send(sender="127.0.0.3")
        assert "200" in await world.send()


@pytest.mark.real_time
async def test_unreachable_guest_is_a_bad_gateway_without_details() -> None:
    async with a_world(has_guest=False) as world:
        await world.proxy.pod_address(a_pod(world.port), "vm", GUEST)

        answer = await world.send()

        assert "502 Bad Gateway" in answer
        assert GUEST not in answer


@pytest.mark.real_time
async def test_address_of_the_guest_is_cached() -> None:
    async with a_world() as world:
        await world.proxy.pod_address(a_pod(world.port), "vm", GUEST)
        for _ in range(3):
            await world.send()

        assert world.finds == 1


@pytest.mark.real_time
async def test_without_a_free_port_the_guests_own_address_stays() -> None:
    async with a_world() as world:
        with socket.socket() as taken:
            taken.bind((NODE, world.port))
            taken.listen()

            assert await world.proxy.pod_address(a_pod(world.port), "vm", GUEST) == GUEST


@pytest.mark.real_time
async def test_port_of_a_vm_that_is_gone_is_free_for_the_next() -> None:
    async with a_world() as world:
        await world.proxy.pod_address(a_pod(world.port), "vm", GUEST)
        world.vms.clear()
        world.vms.add("next")

        assert await world.proxy.pod_address(a_pod(world.port), "next", GUEST) == NODE


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod(9100), 9100),
        (a_pod(9100, wants="yes"), None),
        (a_pod(0), None),
        (a_pod(65536), None),
        (a_pod("9" * 5000), None),
        (a_pod("x"), None),
        (a_pod(""), None),
        (Pod(), None),
    ],
)
def test_pod_opts_in_by_both_annotations(pod: Pod, expected: int | None) -> None:
    assert scrape_port(pod) == expected


def test_open_internet_is_not_among_the_private_networks() -> None:
    assert not any(network.startswith(("0.", "1.", "8.", "::/")) for network in PRIVATE_NETWORKS)


def test_guests_network_is_that_of_its_bridge() -> None:
    there = [Interface("en0", 1, "10.0.0.7"), Interface("bridge100", 1, "192.168.64.1")]

    assert interfaces.interface_of(there, "192.168.64.5") == "bridge100"
    assert interfaces.interface_of(there, "172.16.0.1") is None
