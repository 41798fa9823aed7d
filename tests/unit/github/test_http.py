from __future__ import annotations

import asyncio
import traceback
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.github.http import HttpTransport, checked_url
from bramley.kube.transport import Request
from tests.unit.kube.http_servers import Handler, ReceivedRequest, plain, serving

pytestmark = pytest.mark.real_time

SECRET = ("Authorization", "Bearer ghs_canary")


def answering(body: bytes, status: str = "200 OK", head: str = "") -> Handler:
    async def handler(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if head:
            writer.write(f"HTTP/1.1 {status}\r\n{head}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            plain(writer, body, status)

    return handler


def a_request(path: str = "/orgs/acme/installation", **query: str) -> Request:
    return Request("GET", path, query=query, headers=(SECRET,), deadline=timedelta(seconds=5))


async def test_path_and_query_follow_the_base_url_of_an_enterprise() -> None:
    async with (
        serving(answering(b"{}")) as server,
        HttpTransport(f"{server.url}/api/v3/") as transport,
    ):
        response = await transport.send(a_request(name="a b"))

    assert (response.status, response.body) == (200, b"{}")
    assert server.received[0].line == "GET /api/v3/orgs/acme/installation?name=a+b HTTP/1.1"


async def test_read_of_a_renamed_repository_is_redirected_within_the_api() -> None:
    async def handler(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        target = f"{server.url}/api/v3/repositories/7/installation?page=1"
        moved = answering(b"", "301 Moved Permanently", f"Location: {target}")
        known = answering(b"found")
        await (known if "/repositories/7/" in received.line else moved)(received, writer)

    async with serving(handler) as server, HttpTransport(f"{server.url}/api/v3") as transport:
        response = await transport.send(a_request("/repos/acme/old/installation"))

    assert (response.status, response.body) == (200, b"found")
    assert server.received[1].line == "GET /api/v3/repositories/7/installation?page=1 HTTP/1.1"
    assert server.received[1].header("authorization") == SECRET[1]


@pytest.mark.parametrize(
    ("method", "location"),
    [
        ("GET", "http://127.0.0.1:1/api/v3/elsewhere"),
        ("GET", "//elsewhere.invalid/api/v3/x"),
        ("GET", "http://user@127.0.0.1:1/api/v3/x"),
        ("GET", "/other"),
        ("GET", "/api/v3/../other"),
        ("GET", "http://["),
        ("POST", "/api/v3/repositories/7"),
        ("DELETE", "/api/v3/repositories/7"),
    ],
)
async def test_other_redirect_is_not_followed(method: str, location: str) -> None:
    async with (
        serving(answering(b"", "307 Temporary Redirect", f"Location: {location}")) as server,
        HttpTransport(f"{server.url}/api/v3") as transport,
    ):
        request = Request(method, "/repos/acme/old", headers=(SECRET,))
        assert (await transport.send(request)).status == 307

    assert len(server.received) == 1


async def test_endless_redirect_ends() -> None:
    async with (
        serving(answering(b"", "302 Found", "Location: /again")) as server,
        HttpTransport(server.url) as transport,
    ):
        assert (await transport.send(a_request())).status == 302

    assert len(server.received) == 4


async def test_large_success_is_an_error_and_a_large_error_is_cut() -> None:
    body = b"x" * 200_000
    async with (
        serving(answering(body)) as server,
        HttpTransport(server.url, max_response_bytes=1000) as transport,
    ):
        with pytest.raises(errors.GitHubUnavailable, match="exceeds the size limit"):
            await transport.send(a_request())
        server.handler = answering(body, "500 Oops")
        assert len((await transport.send(a_request())).body) == 64 * 1024


async def test_failures_are_translated_without_headers() -> None:
    async def hang(_received: ReceivedRequest, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def hang_up(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with serving(hang) as server, HttpTransport(server.url) as transport:
        late = Request("GET", "/", headers=(SECRET,), deadline=timedelta(milliseconds=50))
        with pytest.raises(errors.TimedOut):
            await transport.send(late)
        server.handler = hang_up
        with pytest.raises(errors.GitHubUnavailable) as raised:
            await transport.send(a_request())

    assert "canary" not in "".join(traceback.format_exception(raised.value))


async def test_refused_connection_and_closed_transport_are_unavailable() -> None:
    transport = HttpTransport("http://127.0.0.1:1")
    with pytest.raises(errors.GitHubUnavailable, match="is closed"):
        await transport.send(a_request())

    async with transport:
        with pytest.raises(errors.GitHubUnavailable):
            await transport.send(a_request())


@pytest.mark.parametrize(
    "text",
    [
        "https://api.github.com",
        "https://github.example.com/api/v3/",
        "http://127.0.0.1:8088",
        "http://[::1]:1",
    ],
)
def test_usable_url_is_accepted(text: str) -> None:
    assert str(checked_url(text)) == text.rstrip("/")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api.github.com",
        "http://api.github.com",
        "ftp://127.0.0.1",
        "https://user:canary@api.github.com",
        "https://api.github.com/?token=canary",
        "https://[",
    ],
)
def test_url_that_would_expose_tokens_is_refused(text: str) -> None:
    with pytest.raises(errors.BadConfiguration) as raised:
        checked_url(text)

    assert "canary" not in str(raised.value)
