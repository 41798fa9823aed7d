"""The limits of the client of the dispatch server, with a server on a loopback socket."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from yarl import URL

from bramley.app.jobs_client import JobsClient, Limits, checked_url
from bramley.base import errors
from bramley.base.secret import Secret
from tests.unit.kube.http_servers import (
    Handler,
    ReceivedRequest,
    Server,
    chunk,
    chunked_head,
    plain,
    serving,
)

pytestmark = pytest.mark.real_time

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TOKEN = "canary-token"
SHORT = Limits(deadline=timedelta(seconds=0.05))


@asynccontextmanager
async def a_client(
    handler: Handler, limits: Limits | None = None
) -> AsyncIterator[tuple[JobsClient, Server]]:
    async with (
        serving(handler) as server,
        JobsClient(URL(server.url), Secret(f"Bearer {TOKEN}"), limits) as client,
    ):
        yield client, server


async def silent(_received: ReceivedRequest, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def cut(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    chunked_head(writer)
    chunk(writer, b"id,state\r\n")
    await writer.drain()
    writer.close()


async def stalled(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    chunked_head(writer)
    chunk(writer, b"id,state\r\n")
    await writer.drain()
    await asyncio.Event().wait()


async def test_a_silent_server_is_an_error_after_the_deadline() -> None:
    async with a_client(silent, SHORT) as (client, _):
        with pytest.raises(errors.TimedOut, match=r"no response within 0.05 s"):
            await client.timeline(7)


async def test_a_response_that_is_too_large_is_refused() -> None:
    async def large(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        plain(writer, b"x" * 2048)

    async with a_client(large, Limits(max_response_bytes=1024)) as (client, _):
        with pytest.raises(errors.Unavailable, match="exceeds the size limit"):
            await client.log(7)


@pytest.mark.parametrize("handler", [cut, stalled])
async def test_an_export_that_is_cut_or_stalls_is_an_error(handler: Handler) -> None:
    async with a_client(handler, SHORT) as (client, _):
        parts = client.export("csv", NOON)

        assert await anext(parts) == b"id,state\r\n"
        with pytest.raises(errors.Unavailable):
            await anext(parts)


async def test_the_reader_of_an_export_may_take_longer_than_the_deadline() -> None:
    async def two_parts(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        chunk(writer, b"one")
        chunk(writer, b"")

    async with a_client(two_parts, SHORT) as (client, _):
        async for part in client.export("csv", NOON):
            await asyncio.sleep(0.1)

            assert part == b"one"


async def test_a_redirect_is_not_followed_with_the_token() -> None:
    async def redirecting(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 302 Found\r\nLocation: {other.url}/\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())

    async with serving(silent) as other, a_client(redirecting) as (client, _):
        with pytest.raises(errors.BadConfiguration, match="--server"):
            await client.timeline(7)

        assert other.received == []


async def test_no_traceback_contains_the_token() -> None:
    async def broken(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {TOKEN}\r\n\r\n".encode())

    async with a_client(broken) as (client, _):
        with pytest.raises(errors.Unavailable) as caught:
            await client.timeline(7)

    assert TOKEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"])
def test_plain_http_is_for_this_machine_unless_it_is_permitted(url: str) -> None:
    assert checked_url(url, "--server").scheme == "http"
    assert checked_url("http://example.com", "--server", insecure_http=True).host == "example.com"
