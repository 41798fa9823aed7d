from __future__ import annotations

import asyncio
import gzip
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.kube.config import ClientConfig
from bramley.kube.credentials import Credential, StaticCredentials, bearer
from bramley.kube.http import HttpTransport, Settings
from bramley.kube.transport import Request
from tests.unit.kube.http_servers import (
    ReceivedRequest,
    chunk,
    chunked_head,
    eventually,
    plain,
    serving,
)

pytestmark = pytest.mark.real_time


async def hello(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    plain(writer, b"hello")


async def test_the_server_sees_the_whole_request() -> None:
    async with serving(hello) as server:
        transport = HttpTransport(ClientConfig(server.url + "/prefix/", headers=(("X-A", "b"),)))
        request = Request(
            "PATCH", "/a/b%3Ac", {"x": "1 &"}, body=b"{}", content_type="application/json"
        )

        answer = await transport.send(request)
        await transport.close()

    assert (answer.status, answer.body) == (200, b"hello")
    [received] = server.received
    assert received.line == "PATCH /prefix/a/b%3Ac?x=1+%26 HTTP/1.1"
    assert received.body == b"{}"
    assert received.header("content-type") == "application/json"
    assert received.header("x-a") == "b"
    assert received.header("accept-encoding") == "gzip"
    assert received.header("user-agent").startswith("bramley/")


async def test_one_socket_serves_many_requests() -> None:
    async with serving(hello) as server:
        transport = HttpTransport(ClientConfig(server.url))
        for _ in range(20):
            await transport.send(Request("GET", "/"))
        await transport.close()

    assert len(server.received) == 20
    assert server.sockets == 1


async def test_sockets_are_limited_to_the_requests_in_flight() -> None:
    async def slow(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        plain(writer, b"hello")

    async with serving(slow) as server:
        transport = HttpTransport(ClientConfig(server.url), settings=Settings(requests_in_flight=4))
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(transport.send(Request("GET", "/")))
        await transport.close()

    assert len(server.received) == 40
    assert server.sockets <= 4


async def test_streams_do_not_take_the_slots_of_requests() -> None:
    async def serve(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if "watch" in received.line:
            chunked_head(writer)
        else:
            plain(writer, b"hello")

    async with serving(serve) as server:
        transport = HttpTransport(ClientConfig(server.url), settings=Settings(requests_in_flight=1))
        first = transport.stream(Request("GET", "/watch"))
        second = transport.stream(Request("GET", "/watch"))
        async with first, second:
            answer = await transport.send(Request("GET", "/"))
        await transport.close()

    assert answer.body == b"hello"


async def test_a_server_that_does_not_answer_is_timed_out() -> None:
    async def silent(_received: ReceivedRequest, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(silent) as server:
        transport = HttpTransport(ClientConfig(server.url))
        request = Request("GET", "/x", deadline=timedelta(milliseconds=50))
        with pytest.raises(errors.TimedOut, match="GET /x: no response within"):
            await transport.send(request)
        with pytest.raises(errors.TimedOut):
            async with transport.stream(request):
                pass
        await transport.close()


async def test_a_server_that_stops_in_the_middle_is_timed_out() -> None:
    async def half(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(60)

    async with serving(half) as server:
        transport = HttpTransport(ClientConfig(server.url))
        with pytest.raises(errors.TimedOut):
            await transport.send(Request("GET", "/", deadline=timedelta(milliseconds=100)))
        await transport.close()


async def test_no_server_is_unavailable() -> None:
    async with serving(hello) as server:
        url = server.url
    transport = HttpTransport(ClientConfig(url))

    with pytest.raises(errors.ApiUnavailable, match="GET /x") as caught:
        await transport.send(Request("GET", "/x"))

    assert "ssl" not in str(caught.value)
    await transport.close()


async def test_a_connection_cut_in_the_middle_is_unavailable() -> None:
    async def cut(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        chunk(writer, b"one\n")
        await writer.drain()
        writer.close()

    async with serving(cut) as server:
        transport = HttpTransport(ClientConfig(server.url))
        with pytest.raises(errors.ApiUnavailable):
            await transport.send(Request("GET", "/"))
        async with transport.stream(Request("GET", "/")) as stream:
            assert await anext(stream.chunks) == b"one\n"
            with pytest.raises(errors.ApiUnavailable):
                await anext(stream.chunks)
        await transport.close()


async def test_small_chunks_are_combined() -> None:
    async def many(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        for _ in range(5000):
            chunk(writer, b"x" * 99 + b"\n")
        writer.write(b"0\r\n\r\n")

    async with serving(many) as server:
        transport = HttpTransport(ClientConfig(server.url))
        async with transport.stream(Request("GET", "/")) as stream:
            sizes = [len(piece) async for piece in stream.chunks]
        await transport.close()

    assert sum(sizes) == 500_000
    assert len(sizes) < 500


async def test_leaving_a_stream_closes_its_connection() -> None:
    async def endless(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        chunk(writer, b"x")

    async with serving(endless) as server:
        transport = HttpTransport(ClientConfig(server.url))
        async with transport.stream(Request("GET", "/")) as stream:
            await anext(stream.chunks)
            assert server.closed == 0
        await eventually(lambda: server.closed == 1)
        await transport.close()


async def test_cancelling_a_reader_closes_its_connection() -> None:
    async def endless(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)

    async def read() -> None:
        async with transport.stream(Request("GET", "/")) as stream:
            await anext(stream.chunks)

    async with serving(endless) as server:
        transport = HttpTransport(ClientConfig(server.url))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await eventually(lambda: len(server.received) == 1)
            task.cancel()
        await eventually(lambda: server.closed == 1)
        await transport.close()

    assert task.cancelled()


async def test_cancelling_a_request_closes_its_connection() -> None:
    async def silent(_received: ReceivedRequest, _writer: asyncio.StreamWriter) -> None:
        """Leave the request unanswered."""

    async with serving(silent) as server:
        transport = HttpTransport(ClientConfig(server.url))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(transport.send(Request("GET", "/")))
            await eventually(lambda: len(server.received) == 1)
            task.cancel()
        await eventually(lambda: server.closed == 1)
        await transport.close()


async def test_endless_response_is_refused() -> None:
    async def flood(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        while True:
            chunk(writer, b"x" * 65_536)
            await writer.drain()

    async with serving(flood) as server:
        settings = Settings(max_response_bytes=1_000_000)
        transport = HttpTransport(ClientConfig(server.url), settings=settings)
        with pytest.raises(errors.ApiUnavailable, match="exceeds the size limit"):
            await transport.send(Request("GET", "/"))
        await eventually(lambda: server.closed == 1)
        await transport.close()


async def test_redirects_are_not_followed() -> None:
    async def away(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    async with serving(away) as server:
        access = ClientConfig(
            server.url, credentials=StaticCredentials(Credential(bearer("hunter2", "test")))
        )
        transport = HttpTransport(access)
        answer = await transport.send(Request("GET", "/"))
        await transport.close()

    assert answer.status == 302
    assert len(server.received) == 1


async def test_large_bodies_are_sent_whole() -> None:
    async with serving(hello) as server:
        transport = HttpTransport(ClientConfig(server.url))
        body = bytes(range(256)) * 12_000
        await transport.send(Request("POST", "/", body=body))
        await transport.close()

    assert server.received[0].body == body


async def test_compressed_responses_are_decompressed_and_optional() -> None:
    async def serve(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if received.header("accept-encoding") != "gzip":
            plain(writer, b"plain")
            return
        body = gzip.compress(b"packed")
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    async with serving(serve) as server:
        packing = HttpTransport(ClientConfig(server.url))
        declining = HttpTransport(ClientConfig(server.url, compression=False))
        packed = await packing.send(Request("GET", "/"))
        declined = await declining.send(Request("GET", "/"))
        await packing.close()
        await declining.close()

    assert (packed.body, declined.body) == (b"packed", b"plain")


async def test_proxy_gets_the_request_instead_of_the_server() -> None:
    async with serving(hello) as proxy:
        transport = HttpTransport(ClientConfig("http://far.away.example:6443", proxy=proxy.url))
        answer = await transport.send(Request("GET", "/api"))
        await transport.close()

    assert answer.body == b"hello"
    assert proxy.received[0].line == "GET http://far.away.example:6443/api HTTP/1.1"


async def test_a_header_may_be_sent_more_than_once() -> None:
    groups = (("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    async with serving(hello) as server:
        transport = HttpTransport(ClientConfig(server.url, headers=groups))
        await transport.send(Request("GET", "/"))
        await transport.close()

    sent = [value for key, value in server.received[0].headers if key == "impersonate-group"]
    assert sent == ["a", "b"]


async def test_closed_transport_raises() -> None:
    transport = HttpTransport(ClientConfig("http://127.0.0.1:1"))
    await transport.close()

    with pytest.raises(errors.ApiUnavailable, match="closed"):
        await transport.send(Request("GET", "/"))
