from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.kube.access import Access
from bramley.kube.credentials import Credential, Fixed, TokenFile, bearer
from bramley.kube.http import HttpTransport, Settings
from bramley.kube.tls import ClientCertificate, Trust
from bramley.kube.transport import Request
from tests.unit.kube.certificates import Authority
from tests.unit.kube.servers import Asked, chunk, chunked_head, eventually, plain, serving

pytestmark = pytest.mark.real_time


async def hello(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    plain(writer, b"hello")


async def test_the_server_sees_the_whole_request() -> None:
    async with serving(hello) as server:
        transport = HttpTransport(Access(server.url + "/prefix/", headers=(("X-A", "b"),)))
        request = Request(
            "PATCH", "/a/b%3Ac", {"x": "1 &"}, body=b"{}", content_type="application/json"
        )

        answer = await transport.send(request)
        await transport.close()

    assert (answer.status, answer.body) == (200, b"hello")
    [asked] = server.asked
    assert asked.line == "PATCH /prefix/a/b%3Ac?x=1+%26 HTTP/1.1"
    assert asked.body == b"{}"
    assert asked.header("content-type") == "application/json"
    assert asked.header("x-a") == "b"
    assert asked.header("accept-encoding") == "gzip"
    assert asked.header("user-agent").startswith("bramley/")


async def test_one_socket_serves_many_requests() -> None:
    async with serving(hello) as server:
        transport = HttpTransport(Access(server.url))
        for _ in range(20):
            await transport.send(Request("GET", "/"))
        await transport.close()

    assert len(server.asked) == 20
    assert server.sockets == 1


async def test_no_more_sockets_are_opened_than_requests_may_fly() -> None:
    async def slow(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        plain(writer, b"hello")

    async with serving(slow) as server:
        transport = HttpTransport(Access(server.url), settings=Settings(requests_in_flight=4))
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(transport.send(Request("GET", "/")))
        await transport.close()

    assert len(server.asked) == 40
    assert server.sockets <= 4


async def test_streams_do_not_take_the_slots_of_requests() -> None:
    async def serve(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if "watch" in asked.line:
            chunked_head(writer)
        else:
            plain(writer, b"hello")

    async with serving(serve) as server:
        transport = HttpTransport(Access(server.url), settings=Settings(requests_in_flight=1))
        first = transport.stream(Request("GET", "/watch"))
        second = transport.stream(Request("GET", "/watch"))
        async with first, second:
            answer = await transport.send(Request("GET", "/"))
        await transport.close()

    assert answer.body == b"hello"


async def test_a_server_that_does_not_answer_is_timed_out() -> None:
    async def silent(_asked: Asked, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(silent) as server:
        transport = HttpTransport(Access(server.url))
        request = Request("GET", "/x", deadline=timedelta(milliseconds=50))
        with pytest.raises(errors.TimedOut, match="GET /x: no answer within"):
            await transport.send(request)
        with pytest.raises(errors.TimedOut):
            async with transport.stream(request):
                pass
        await transport.close()


async def test_a_server_that_stops_in_the_middle_is_timed_out() -> None:
    async def half(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(60)

    async with serving(half) as server:
        transport = HttpTransport(Access(server.url))
        with pytest.raises(errors.TimedOut):
            await transport.send(Request("GET", "/", deadline=timedelta(milliseconds=100)))
        await transport.close()


async def test_no_server_is_unavailable() -> None:
    async with serving(hello) as server:
        url = server.url
    transport = HttpTransport(Access(url))

    with pytest.raises(errors.ApiUnavailable, match="GET /x"):
        await transport.send(Request("GET", "/x"))

    await transport.close()


async def test_a_connection_cut_in_the_middle_is_unavailable() -> None:
    async def cut(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        chunk(writer, b"one\n")
        await writer.drain()
        writer.close()

    async with serving(cut) as server:
        transport = HttpTransport(Access(server.url))
        with pytest.raises(errors.ApiUnavailable):
            await transport.send(Request("GET", "/"))
        async with transport.stream(Request("GET", "/")) as stream:
            assert await anext(stream.chunks) == b"one\n"
            with pytest.raises(errors.ApiUnavailable):
                await anext(stream.chunks)
        await transport.close()


async def test_what_the_server_sent_in_many_pieces_comes_in_few() -> None:
    async def many(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        for _ in range(5000):
            chunk(writer, b"x" * 99 + b"\n")
        writer.write(b"0\r\n\r\n")

    async with serving(many) as server:
        transport = HttpTransport(Access(server.url))
        async with transport.stream(Request("GET", "/")) as stream:
            sizes = [len(piece) async for piece in stream.chunks]
        await transport.close()

    assert sum(sizes) == 500_000
    assert len(sizes) < 500


async def test_leaving_a_stream_closes_its_connection() -> None:
    async def endless(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        chunk(writer, b"x")

    async with serving(endless) as server:
        transport = HttpTransport(Access(server.url))
        async with transport.stream(Request("GET", "/")) as stream:
            await anext(stream.chunks)
            assert server.closed == 0
        await eventually(lambda: server.closed == 1)
        await transport.close()


async def test_cancelling_a_reader_closes_its_connection() -> None:
    async def endless(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)

    async def read() -> None:
        async with transport.stream(Request("GET", "/")) as stream:
            await anext(stream.chunks)

    async with serving(endless) as server:
        transport = HttpTransport(Access(server.url))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await eventually(lambda: len(server.asked) == 1)
            task.cancel()
        await eventually(lambda: server.closed == 1)
        await transport.close()

    assert task.cancelled()


async def test_cancelling_a_request_closes_its_connection() -> None:
    async def silent(_asked: Asked, _writer: asyncio.StreamWriter) -> None:
        """Leave the request unanswered."""

    async with serving(silent) as server:
        transport = HttpTransport(Access(server.url))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(transport.send(Request("GET", "/")))
            await eventually(lambda: len(server.asked) == 1)
            task.cancel()
        await eventually(lambda: server.closed == 1)
        await transport.close()


async def test_an_answer_without_end_is_cut_off() -> None:
    async def flood(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        chunked_head(writer)
        while True:
            chunk(writer, b"x" * 65_536)
            await writer.drain()

    async with serving(flood) as server:
        settings = Settings(longest_answer_bytes=1_000_000)
        transport = HttpTransport(Access(server.url), settings=settings)
        with pytest.raises(errors.ApiUnavailable, match="longer than we accept"):
            await transport.send(Request("GET", "/"))
        await eventually(lambda: server.closed == 1)
        await transport.close()


async def test_redirects_are_not_followed() -> None:
    async def away(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    async with serving(away) as server:
        access = Access(server.url, credentials=Fixed(Credential(bearer("hunter2", "test"))))
        transport = HttpTransport(access)
        answer = await transport.send(Request("GET", "/"))
        await transport.close()

    assert answer.status == 302
    assert len(server.asked) == 1


async def test_a_refused_token_is_read_again_and_the_request_repeated(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    async def doorman(asked: Asked, writer: asyncio.StreamWriter) -> None:
        good = asked.header("authorization") == "Bearer new"
        plain(writer, b"welcome", "200 OK" if good else "401 Unauthorized")

    async with serving(doorman) as server:
        access = Access(server.url, credentials=TokenFile(file, clock=SystemClock()))
        transport = HttpTransport(access)
        before = await transport.send(Request("GET", "/"))
        file.write_text("new\n")
        after = await transport.send(Request("POST", "/", body=b"{}"))
        async with transport.stream(Request("GET", "/")) as stream:
            streamed = stream.status
        await transport.close()

    assert [before.status, after.status, streamed] == [401, 200, 200]
    tokens = [asked.header("authorization") for asked in server.asked]
    assert tokens == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]


async def test_a_stream_with_a_refused_token_opens_with_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    async def doorman(asked: Asked, writer: asyncio.StreamWriter) -> None:
        good = asked.header("authorization") == "Bearer new"
        plain(writer, b"x", "200 OK" if good else "401 Unauthorized")

    async with serving(doorman) as server:
        tokens = TokenFile(file, clock=SystemClock())
        await tokens.current()
        file.write_text("new")
        transport = HttpTransport(Access(server.url, credentials=tokens))
        async with transport.stream(Request("GET", "/")) as stream:
            assert stream.status == 200
            assert [piece async for piece in stream.chunks] == [b"x"]
        await transport.close()


async def test_a_closed_transport_says_so() -> None:
    transport = HttpTransport(Access("http://127.0.0.1:1"))
    await transport.close()

    with pytest.raises(errors.ApiUnavailable, match="closed"):
        await transport.send(Request("GET", "/"))


async def test_the_token_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def rude(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"this is no HTTP\r\n\r\n")
        await writer.drain()
        writer.close()

    async with serving(rude) as server:
        access = Access(server.url, credentials=Fixed(Credential(bearer("hunter2", "test"))))
        transport = HttpTransport(access)
        with caplog.at_level(logging.DEBUG), pytest.raises(errors.ApiUnavailable) as caught:
            await transport.send(Request("GET", "/"))
        await transport.close()

    shown = (
        f"{caught.value!r} {caught.value.__cause__!r} {access!r} {vars(transport)} {caplog.text}"
    )
    assert "hunter2" not in shown


async def test_tls_verifies_the_server_and_shows_our_certificate(tmp_path: Path) -> None:
    authority = Authority.make()
    context = authority.server_context(tmp_path, "127.0.0.1")
    pair = authority.client("somebody")
    mine = ClientCertificate(pair.certificate, Secret(pair.key))

    async with serving(hello, context) as server:
        access = Access(
            server.url,
            trust=Trust(authority.certificate),
            credentials=Fixed(Credential(certificate=mine)),
        )
        transport = HttpTransport(access)
        answer = await transport.send(Request("GET", "/"))
        await transport.close()

    assert answer.body == b"hello"
    assert "somebody" in str(server.certificates[0])


async def test_a_server_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    context = Authority.make().server_context(tmp_path, "127.0.0.1")

    async with serving(hello, context) as server:
        transport = HttpTransport(Access(server.url, trust=Trust(Authority.make().certificate)))
        with pytest.raises(errors.ApiUnavailable, match="certificate"):
            await transport.send(Request("GET", "/"))
        await transport.close()

    assert server.asked == []


async def test_a_server_under_another_name_is_believed_only_when_told(tmp_path: Path) -> None:
    authority = Authority.make()
    context = authority.server_context(tmp_path, "kubernetes.example")
    asked_for: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    named = Trust(authority.certificate, server_name="kubernetes.example")

    async with serving(hello, context) as server:
        unnamed = HttpTransport(Access(server.url, trust=Trust(authority.certificate)))
        with pytest.raises(errors.ApiUnavailable):
            await unnamed.send(Request("GET", "/"))
        told = HttpTransport(Access(server.url, trust=named))
        answer = await told.send(Request("GET", "/"))
        careless = HttpTransport(Access(server.url, trust=Trust(verify=False)))
        unchecked = await careless.send(Request("GET", "/"))
        for transport in (unnamed, told, careless):
            await transport.close()

    assert answer.body == unchecked.body == b"hello"
    assert "kubernetes.example" in asked_for


def test_a_context_for_tls_does_not_accept_old_protocols() -> None:
    from bramley.kube import tls

    assert tls.context(Trust()).minimum_version >= ssl.TLSVersion.TLSv1_2
