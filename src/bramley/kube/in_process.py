"""The transport without a socket: requests go straight into an ASGI application on the same loop.

Nothing here waits for the outside, so it runs under virtual time and repeats itself from the same seed. The application
sees what a server would show it, among them backpressure on streams and `http.disconnect` when the reader leaves.
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

# What a socket's buffers would hold before the server has to wait for its reader.
BUFFER_BYTES = 256 * 1024
# How long an application may take to notice that its reader left before it is cancelled.
GRACE_SECONDS = 1.0


class Exchange:
    """One request on its way through the application, and the answer as far as it came."""

    def __init__(self, request: Request, token: Secret | None, *, buffer: float) -> None:
        self._request = request
        self._token = token
        self._buffer = buffer
        self._asked = False
        self._gone = asyncio.Event()
        self._readable = asyncio.Event()
        self._room = asyncio.Event()
        self._chunks: list[bytes] = []
        self._held = 0
        self._ended = False
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def run(self, application: Application) -> None:
        """Let the application answer; its failure becomes a 500, as with any server."""
        try:
            await application(self._scope(), self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - the HTTP boundary: a bug must not end the caller
            logger.error("The application failed", exc=error, path=self._request.path)  # noqa: TRY400 - our logger
        self.status = self.status or 500
        self._ended = True
        self._readable.set()

    async def head(self) -> None:
        """Wait until the status and the headers are there."""
        while not self.status:
            await self._news()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, all that is there at once."""
        while chunk := await self._next():
            yield chunk

    def body(self) -> bytes:
        """Return what came so far."""
        taken, self._chunks, self._held = b"".join(self._chunks), [], 0
        self._room.set()
        return taken

    def leave(self) -> None:
        """Tell the application that nobody reads any more."""
        self._gone.set()
        self._room.set()

    async def _next(self) -> bytes:
        while not self._chunks and not self._ended:
            await self._news()
        return self.body()

    async def _news(self) -> None:
        self._readable.clear()
        await self._readable.wait()

    def _scope(self) -> dict[str, Any]:
        path = self._request.path
        return {
            "type": "http",
            # Version 2.3 tells frameworks to listen for the disconnect instead of waiting for a send to fail.
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self._request.method,
            "scheme": "https",
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(self._request.query).encode(),
            "headers": self._header_lines(),
            # No address: whoever keeps records tells by that who asks from within the process.
            "client": None,
            "server": ("in-process", None),
            "state": {},
        }

    def _header_lines(self) -> list[tuple[bytes, bytes]]:
        found = {"host": "in-process", "accept": self._request.accept}
        if self._request.body is not None:
            found["content-length"] = str(len(self._request.body))
        if self._request.content_type:
            found["content-type"] = self._request.content_type
        if self._token:
            found["authorization"] = f"Bearer {self._token.reveal()}"
        further = ((key.lower(), value) for key, value in self._request.headers)
        return [(key.encode(), value.encode()) for key, value in (*found.items(), *further)]

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._request.body or b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.headers = _lowered(message.get("headers", ()))
            self.status = message["status"]
        elif not self._gone.is_set():
            self._keep(message.get("body", b""))
            self._ended = not message.get("more_body", False)
        self._readable.set()
        if self._held > self._buffer:
            self._room.clear()
            await self._room.wait()

    def _keep(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._held += len(chunk)


class InProcessTransport:
    """Carries requests into an application of this process, as the owner of a token or as nobody."""

    def __init__(self, application: Application, *, token: Secret | str | None = None) -> None:
        self._application = application
        self._token = Secret(token) if isinstance(token, str) else token

    async def send(self, request: Request) -> Response:
        """Return the whole answer, within the request's deadline."""
        exchange = Exchange(request, self._token, buffer=math.inf)
        async with _deadline(request):
            await exchange.run(self._application)
        return Response(exchange.status, exchange.headers, exchange.body())

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open the answer as a stream; leaving disconnects, and cancels what does not notice it."""
        exchange = Exchange(request, self._token, buffer=BUFFER_BYTES)
        async with _beside(exchange.run(self._application), leave=exchange.leave):
            async with _deadline(request):
                await exchange.head()
            yield Stream(exchange.status, exchange.headers, exchange.chunks())

    async def close(self) -> None:
        """Hold nothing, so give nothing back."""


@asynccontextmanager
async def _beside(
    answering: Coroutine[Any, Any, None], *, leave: Callable[[], None]
) -> AsyncIterator[None]:
    """Run the application beside the body; the group is left by hand so that the body's error is not wrapped."""
    group = asyncio.TaskGroup()
    await group.__aenter__()
    task = group.create_task(answering)
    try:
        yield
    finally:
        leave()
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
        told = f"{request.method} {request.path}: no answer within {request.deadline}"
        raise errors.TimedOut(told) from None


def _lowered(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in headers}
