from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as AppRequest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from bramley.base import errors
from bramley.kube.in_process import BUFFER_BYTES, InProcessTransport
from bramley.kube.transport import Request

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def echo(app_request: AppRequest) -> JSONResponse:
    echoed = {
        "method": app_request.method,
        "path": app_request.url.path,
        "query": dict(app_request.query_params),
        "headers": dict(app_request.headers),
        "body": (await app_request.body()).decode(),
    }
    return JSONResponse(echoed, status_code=201, headers={"X-Answer": "yes"})


ECHO = Starlette(routes=[Route("/{rest:path}", echo, methods=["GET", "POST"])])


async def test_the_application_sees_the_whole_request() -> None:
    transport = InProcessTransport(ECHO, token="hunter2")
    request = Request(
        "POST", "/a/b%20c", {"x": "1 &", "y": "ü"}, body=b"{}", content_type="application/json"
    )

    answer = await transport.send(request)

    assert answer.status == 201
    assert answer.headers["x-answer"] == "yes"
    echoed = msgspec.json.decode(answer.body)
    assert echoed["method"] == "POST"
    assert echoed["query"] == {"x": "1 &", "y": "ü"}
    assert echoed["body"] == "{}"
    assert echoed["headers"]["authorization"] == "Bearer hunter2"
    assert echoed["headers"]["content-type"] == "application/json"


async def test_request_without_a_token_is_anonymous() -> None:
    answer = await InProcessTransport(ECHO).send(Request("GET", "/"))

    assert b"authorization" not in answer.body


async def test_the_token_is_not_shown() -> None:
    transport = InProcessTransport(ECHO, token="hunter2")

    assert "hunter2" not in repr(vars(transport))


async def test_slow_application_times_out() -> None:
    async def slow(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.sleep(3600)

    transport = InProcessTransport(slow)
    request = Request("GET", "/", deadline=timedelta(seconds=5))

    with pytest.raises(errors.TimedOut, match="GET /"):
        await transport.send(request)
    with pytest.raises(errors.TimedOut):
        async with transport.stream(request):
            pass

    assert asyncio.get_running_loop().time() <= 12


async def test_a_bug_in_the_application_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ZeroDivisionError

    transport = InProcessTransport(broken)

    with caplog.at_level(logging.ERROR):
        answer = await transport.send(Request("GET", "/"))
        async with transport.stream(Request("GET", "/")) as stream:
            assert stream.status == 500

    assert answer.status == 500
    assert "ZeroDivisionError" in caplog.text


async def start(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"A", b"b")]})


async def piece(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def test_a_stream_comes_in_pieces_as_time_passes() -> None:
    async def ticking(_scope: Scope, _receive: Receive, send: Send) -> None:
        await start(send)
        for number in range(3):
            await piece(send, b"%d" % number)
            await asyncio.sleep(60)
        await piece(send, b"", more=False)

    loop = asyncio.get_running_loop()
    async with InProcessTransport(ticking).stream(Request("GET", "/")) as stream:
        seen = [(loop.time(), chunk) async for chunk in stream.chunks]

    assert stream.headers == {"a": "b"}
    assert seen == [(0, b"0"), (60, b"1"), (120, b"2")]


async def test_leaving_disconnects_the_application() -> None:
    ended: list[str] = []

    async def endless(_scope: Scope, receive: Receive, send: Send) -> None:
        await start(send)
        await receive()
        ended.append((await receive())["type"])

    async with InProcessTransport(endless).stream(Request("GET", "/")):
        await asyncio.sleep(1)

    assert ended == ["http.disconnect"]


async def test_leaving_ends_a_starlette_stream() -> None:
    ended: list[bool] = []

    async def ticks() -> Any:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(1)
        finally:
            ended.append(True)

    async def serve(_request: AppRequest) -> StreamingResponse:
        return StreamingResponse(ticks())

    app = Starlette(routes=[Route("/", serve)])
    async with InProcessTransport(app).stream(Request("GET", "/")) as stream:
        assert await anext(stream.chunks) == b"tick"

    await asyncio.sleep(10)
    assert ended == [True]


async def test_application_that_ignores_the_disconnect_is_cancelled() -> None:
    ended: list[str] = []

    async def unresponsive(_scope: Scope, _receive: Receive, send: Send) -> None:
        await start(send)
        try:
            await asyncio.sleep(86_400)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with InProcessTransport(unresponsive).stream(Request("GET", "/")):
        pass

    assert ended == ["cancelled"]
    assert asyncio.get_running_loop().time() < 10


async def test_error_of_the_reader_is_raised_unchanged() -> None:
    async def endless(_scope: Scope, receive: Receive, send: Send) -> None:
        await start(send)
        await receive()
        await receive()

    with pytest.raises(errors.Gone, match="mine"):
        async with InProcessTransport(endless).stream(Request("GET", "/")):
            raise errors.Gone("mine")


async def test_cancelling_the_reader_ends_the_application() -> None:
    ended = asyncio.Event()

    async def endless(_scope: Scope, receive: Receive, send: Send) -> None:
        await start(send)
        await receive()
        await receive()
        ended.set()

    async def read() -> None:
        async with InProcessTransport(endless).stream(Request("GET", "/")) as stream:
            await anext(stream.chunks)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        await asyncio.sleep(1)
        task.cancel()

    assert task.cancelled()
    assert ended.is_set()


async def test_slow_reader_applies_backpressure() -> None:
    sent = 0

    async def send_much(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal sent
        await start(send)
        for _ in range(100):
            await piece(send, b"x" * 65_536)
            sent += 65_536
        await piece(send, b"", more=False)

    async with InProcessTransport(send_much).stream(Request("GET", "/")) as stream:
        await asyncio.sleep(60)
        assert sent <= BUFFER_BYTES + 65_536
        total = sum([len(chunk) async for chunk in stream.chunks])

    assert total == sent == 100 * 65_536
