from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.kube import tls
from bramley.kube.config import ClientConfig
from bramley.kube.credentials import Credential, StaticCredentials, TokenFile, bearer
from bramley.kube.http import HttpTransport
from bramley.kube.tls import ClientCertificate, Trust
from bramley.kube.transport import Request
from tests.unit.kube.certificates import Authority
from tests.unit.kube.http_servers import ReceivedRequest, plain, serving

pytestmark = pytest.mark.real_time


async def hello(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    plain(writer, b"hello")


async def test_a_refused_token_is_read_again_and_the_request_repeated(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    async def check_token(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        good = received.header("authorization") == "Bearer new"
        plain(writer, b"welcome", "200 OK" if good else "401 Unauthorized")

    async with serving(check_token) as server:
        access = ClientConfig(server.url, credentials=TokenFile(file, clock=SystemClock()))
        transport = HttpTransport(access)
        before = await transport.send(Request("GET", "/"))
        file.write_text("new\n")
        after = await transport.send(Request("POST", "/", body=b"{}"))
        async with transport.stream(Request("GET", "/")) as stream:
            streamed = stream.status
        await transport.close()

    assert [before.status, after.status, streamed] == [401, 200, 200]
    tokens = [received.header("authorization") for received in server.received]
    assert tokens == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]


async def test_a_stream_with_a_refused_token_opens_with_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    async def check_token(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        good = received.header("authorization") == "Bearer new"
        plain(writer, b"x", "200 OK" if good else "401 Unauthorized")

    async with serving(check_token) as server:
        tokens = TokenFile(file, clock=SystemClock())
        await tokens.current()
        file.write_text("new")
        transport = HttpTransport(ClientConfig(server.url, credentials=tokens))
        async with transport.stream(Request("GET", "/")) as stream:
            assert stream.status == 200
            assert [piece async for piece in stream.chunks] == [b"x"]
        await transport.close()


async def test_the_token_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def send_no_http(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"this is no HTTP\r\n\r\n")
        await writer.drain()
        writer.close()

    async with serving(send_no_http) as server:
        access = ClientConfig(
            server.url, credentials=StaticCredentials(Credential(bearer("hunter2", "test")))
        )
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
    pair = authority.client("test-client")
    mine = ClientCertificate(pair.certificate, Secret(pair.key))

    async with serving(hello, context) as server:
        access = ClientConfig(
            server.url,
            trust=Trust(authority.certificate),
            credentials=StaticCredentials(Credential(certificate=mine)),
        )
        transport = HttpTransport(access)
        answer = await transport.send(Request("GET", "/"))
        await transport.close()

    assert answer.body == b"hello"
    assert "test-client" in str(server.certificates[0])


async def test_server_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    context = Authority.make().server_context(tmp_path, "127.0.0.1")

    async with serving(hello, context) as server:
        transport = HttpTransport(
            ClientConfig(server.url, trust=Trust(Authority.make().certificate))
        )
        with pytest.raises(errors.ApiUnavailable, match="certificate"):
            await transport.send(Request("GET", "/"))
        await transport.close()

    assert server.received == []


async def test_server_under_another_name_is_trusted_only_when_configured(tmp_path: Path) -> None:
    authority = Authority.make()
    context = authority.server_context(tmp_path, "kubernetes.example")
    server_names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: server_names.append(name)
    named = Trust(authority.certificate, server_name="kubernetes.example")

    async with serving(hello, context) as server:
        unnamed = HttpTransport(ClientConfig(server.url, trust=Trust(authority.certificate)))
        with pytest.raises(errors.ApiUnavailable):
            await unnamed.send(Request("GET", "/"))
        verified = HttpTransport(ClientConfig(server.url, trust=named))
        answer = await verified.send(Request("GET", "/"))
        careless = HttpTransport(ClientConfig(server.url, trust=Trust(verify=False)))
        unchecked = await careless.send(Request("GET", "/"))
        for transport in (unnamed, verified, careless):
            await transport.close()

    assert answer.body == unchecked.body == b"hello"
    assert "kubernetes.example" in server_names


def test_a_context_for_tls_does_not_accept_old_protocols() -> None:
    assert tls.context(Trust()).minimum_version >= ssl.TLSVersion.TLSv1_2
