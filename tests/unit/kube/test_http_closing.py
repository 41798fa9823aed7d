"""A connection that is left in the middle is closed at once, whether or not the server completes the TLS closure."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bramley.kube.config import ClientConfig
from bramley.kube.http import HttpTransport
from bramley.kube.tls import Trust
from bramley.kube.transport import Request
from tests.unit.kube.certificates import Authority

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOOD = b"1000000\r\n" + bytes(0x1000000)


@contextmanager
def unresponsive(context: ssl.SSLContext, answer: bytes) -> Iterator[str]:
    """Serve in a thread: answer one request, then ignore the connection, even its closing."""
    done = threading.Event()

    def serve() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ports.append(listening.getsockname()[1])
            ready.set()
            accepted, _ = listening.accept()
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.recv(65_536)
                with suppress(OSError):
                    connection.sendall(answer)
                done.wait(60)

    ports: list[int] = []
    ready = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait(60)
    try:
        yield f"https://127.0.0.1:{ports[0]}"
    finally:
        done.set()
        thread.join(60)


async def leave_a_stream(transport: HttpTransport) -> None:
    async with transport.stream(Request("GET", "/")) as stream:
        assert stream.status == 200


async def leave_a_flood(transport: HttpTransport) -> None:
    async with transport.stream(Request("GET", "/")) as stream:
        await anext(stream.chunks)
        await asyncio.sleep(0.2)


async def cancel_a_request(transport: HttpTransport) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await transport.send(Request("GET", "/"))


@pytest.mark.parametrize("leave", [leave_a_stream, leave_a_flood, cancel_a_request])
def test_connection_is_closed_with_its_transport_without_the_server(
    tmp_path: Path, leave: Callable[[HttpTransport], Awaitable[None]]
) -> None:
    authority = Authority.make()

    async def main(url: str) -> None:
        transport = HttpTransport(ClientConfig(url, trust=Trust(authority.certificate)))
        await leave(transport)
        await transport.close()

    with unresponsive(authority.server_context(tmp_path, "127.0.0.1"), HEAD + FLOOD) as url:
        asyncio.run(main(url))

    # What is still open is found now and reported as an error.
    gc.collect()
