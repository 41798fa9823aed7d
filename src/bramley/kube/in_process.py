"""The transport without a socket: requests go straight into an ASGI application on the same loop.

Nothing here waits for the network, so it runs under virtual time and is reproducible from a seed. The application gets what
a server would send it, including backpressure on streams and `http.disconnect` when the reader leaves.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    MutableMapping,
)
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlencode

from bramley.base import errors, log
from bramley.base.secret import Secret
from bramley.kube.transport import Request, Response, Stream

logger = log.get(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# As much as a socket's buffers hold before the server has to wait for its reader.
BUFFER_BYTES = 256 * 1024
# How long an application may take to notice that its reader left before it is cancelled.
GRACE_SECONDS = 1.0


class Exchange:
    """One request to the application, and its response as far as received."""

    def __init__(self, request: Request, token: Secret | None, *, buffer: float) -> None:
        self._request = request
        self._token = token
        self._buffer = buffer
        self._received = False
        self._disconnected = asyncio.Event()
        self._readable = asyncio.Event()
        self._has_space = asyncio.Event()
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._ended = False
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def run(self, application: Application) -> None:
        """Run the application; its failure becomes a 500, as with any server."""
        try:
            await application(self._scope(), self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - the HTTP boundary: a bug must not end the caller
            logger.error("In-process request failed", exc=error, path=self._request.path)  # noqa: TRY400 - our logger
        self.status = self.status or 500
        self._ended = True
        self._readable.set()

    async def head(self) -> None:
        """Wait for the status and the headers."""
        while not self.status:
            await self._wait_for_message()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, each time all that is available."""
        while chunk := await self._next():
            yield chunk

    def body(self) -> bytes:
        """Return what was received so far."""
        body, self._chunks, self._buffered = b"".join(self._chunks), [], 0
        self._has_space.set()
        return body

    def disconnect(self) -> None:
        """Disconnect: send `http.disconnect` to the application."""
        self._disconnected.set()
        # Wakes an application that waits for its reader.
        self._has_space.set()

    async def _next(self) -> bytes:
        while not self._chunks and not self._ended:
            await self._wait_for_message()
        return self.body()

    async def _wait_for_message(self) -> None:
        # Nothing runs between the caller's check and this, so no message is missed.
        self._readable.clear()
        await self._readable.wait()

    def _scope(self) -> dict[str, Any]:
        path = self._request.path
        return {
            "type": "http",
            # Since version 2.3 frameworks listen for the disconnect instead of waiting for a send to fail.
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self._request.method,
            "scheme": "https",
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(self._request.query).encode(),
            "headers": self._header_lines(),
            # No address: this is how the audit log recognizes clients inside the process.
            "client": None,
            "server": ("in-process", None),
            "state": {},
        }

    def _header_lines(self) -> list[tuple[bytes, bytes]]:
        headers = {"host": "in-process", "accept": self._request.accept}
        if self._request.body is not None:
            headers["content-length"] = str(len(self._request.body))
        if self._request.content_type:
            headers["content-type"] = self._request.content_type
        if self._token:
            headers["authorization"] = f"Bearer {self._token.reveal()}"
        further = ((key.lower(), value) for key, value in self._request.headers)
        return [(key.encode(), value.encode()) for key, value in (*headers.items(), *further)]

    async def _receive(self) -> Message:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self._request.body or b"", "more_body": False}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.headers = _lowered(message.get("headers", ()))
            self.status = message["status"]
        elif not self._disconnected.is_set():
            self._buffer_chunk(message.get("body", b""))
            self._ended = not message.get("more_body", False)
        self._readable.set()
        if self._buffered > self._buffer:
            self._has_space.clear()
            await self._has_space.wait()

    def _buffer_chunk(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._buffered += len(chunk)


class InProcessTransport:
    """Sends requests to an application of this process, with or without a token."""

    def __init__(self, application: Application, *, token: Secret | str | None = None) -> None:
        self._application = application
        self._token = Secret(token) if isinstance(token, str) else token

    async def send(self, request: Request) -> Response:
        """Return the whole response, within the request's deadline."""
        exchange = Exchange(request, self._token, buffer=math.inf)
        async with _deadline(request):
            await exchange.run(self._application)
        return Response(exchange.status, exchange.headers, exchange.body())

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open the response as a stream; leaving the context disconnects, and cancels an application that ignores it."""
        exchange = Exchange(request, self._token, buffer=BUFFER_BYTES)
        async with _concurrently(exchange.run(self._application), disconnect=exchange.disconnect):
            async with _deadline(request):
                await exchange.head()
            yield Stream(exchange.status, exchange.headers, exchange.chunks())

    async def close(self) -> None:
        """Do nothing: there are no connections."""


@asynccontextmanager
async def _concurrently(
    running: Coroutine[Any, Any, None], *, disconnect: Callable[[], None]
) -> AsyncIterator[None]:
    """Run the application concurrently with the body; the group is left explicitly so that the body's error is not wrapped."""
    group = asyncio.TaskGroup()
    await group.__aenter__()
    task = group.create_task(running)
    try:
        yield
    finally:
        disconnect()
        try:
            await asyncio.wait({task}, timeout=GRACE_SECONDS)
        finally:
            task.cancel()
            await group.__aexit__(None, None, None)


@asynccontextmanager
async def _deadline(request: Request) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(request.deadline.total_seconds()):
            yield
    except TimeoutError:
        about = f"{request.method} {request.path}"
        raise errors.TimedOut(f"{about}: no response within {request.deadline}") from None


def _lowered(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in headers}
