"""One request and its response, between ASGI's messages and the handlers.

Handlers get a `Request` and return a `Response`; only watches and streamed responses send messages themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    MutableMapping,
)
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import chain
from math import inf
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import ANONYMOUS, User
from bramley.apiserver.http.request_info import RequestInfo, Target
from bramley.base.clock import Clock

END = {"type": "http.response.body", "body": b""}
_CHECKS_PER_DEADLINE = 4


class _Stream(msgspec.Struct):
    """One streamed response."""

    send: Send
    clock: Clock
    deadline: float
    sending_since: float = inf

    async def run(self, response: Response, chunks: Chunks) -> None:
        with contextlib.suppress(ConnectionError):
            headers = [response.content_type, response.cache, *response.headers]
            await self.send(
                {"type": "http.response.start", "status": response.code, "headers": headers}
            )
            async for chunk in chunks:
                self.sending_since = self.clock.monotonic()
                await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
                self.sending_since = inf
            await self.send(END)

    def is_stuck(self) -> bool:
        return self.clock.monotonic() - self.sending_since >= self.deadline


async def send_streamed(
    request: Request,
    response: Response,
    chunks: Chunks,
    *,
    send: Send,
    clock: Clock,
    is_allowed: Callable[[], bool],
) -> None:
    """Send a response in chunks while its client is connected, reads it, and `is_allowed` returns True."""
    stream = _Stream(send, clock, request.settings.send_deadline.total_seconds())
    async with aclosing(chunks):
        run = stream.run(response, chunks)
        if not await run_while_connected(
            run, request, is_stuck=stream.is_stuck, is_allowed=is_allowed
        ):
            with contextlib.suppress(ConnectionError):
                await send(END)


async def run_while_connected(
    run: Coroutine[Any, Any, None],
    request: Request,
    *,
    is_stuck: Callable[[], bool],
    is_allowed: Callable[[], bool],
) -> bool:
    """Run a stream until it ends or its client is gone; return False if it ended because `is_allowed` returned False."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run)
        waiting = group.create_task(_wait_for_end(request, is_stuck, is_allowed))
        running.add_done_callback(lambda _: waiting.cancel())
        waiting.add_done_callback(lambda _: running.cancel())
    # A stream that ended by itself sent its own end.
    return not running.cancelled() or waiting.result()


async def _wait_for_end(
    request: Request, is_stuck: Callable[[], bool], is_allowed: Callable[[], bool]
) -> bool:
    """Return True when the client disconnected or no longer reads, and False when it is no longer allowed to."""
    seconds = request.settings.send_deadline.total_seconds() / _CHECKS_PER_DEADLINE
    while not is_stuck():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if (await request.receive())["type"] == "http.disconnect":
                    return True
        # A stream can last for an hour, and its token, Pod or role may be deleted long before.
        if not is_allowed():
            return False
    return True


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = (b"content-type", b"application/json")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
# The key of a connection's client certificate in the ASGI scope.
PEER = "bramley.peer"
NOT_MODIFIED = 304
# As in nginx; never sent, only counted: the client disconnected before there was a response.
CLIENT_CLOSED_REQUEST = 499
_NO_CACHE = (b"cache-control", b"no-cache, private")


class Peer(msgspec.Struct, frozen=True):
    """The owner of a connection's client certificate: the common name is the user, the organisations are the groups.

    Read once when the connection begins, from a certificate that TLS verified to be of our own authority and for clients.
    """

    user: User
    not_after: datetime

    def is_valid(self, now: datetime) -> bool:
        """Return whether the certificate has not expired since the connection began."""
        return now < self.not_after


def peer_of_certificate(certificate: Mapping[str, Any] | None) -> Peer | None:
    """Return the owner of a verified certificate as the `ssl` module parses it; None if it has no common name."""
    if not certificate:
        return None
    parts = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in parts if key == "commonName"), "")
    if not name:
        return None
    groups = tuple(value for key, value in parts if key == "organizationName")
    not_after = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
    return Peer(User(name, groups), not_after)


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


class Request:
    """One request; the body is read only when a handler needs it."""

    __slots__ = (
        "_headers",
        "authenticated_user",
        "code",
        "info",
        "method",
        "path",
        "query",
        "receive",
        "repeated",
        "scope",
        "settings",
        "target",
        "user",
        "warnings",
    )

    def __init__(self, scope: Scope, receive: Receive, settings: Settings) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.receive = receive
        self.settings = settings
        self.scope = scope
        # The owner of the credential, and the user that is authorized; they differ only under impersonation.
        self.authenticated_user: User = ANONYMOUS
        self.user: User = ANONYMOUS
        self.target: Target | None = None
        self.code = CLIENT_CLOSED_REQUEST
        self.warnings: list[str] = []
        self.query: dict[str, str] = {}
        self.repeated: dict[str, list[str]] = {}
        if scope["query_string"]:
            self.query, self.repeated = parse_query(scope["query_string"])
        self.info = RequestInfo.parse(self.method, self.path, self.query)
        self._headers: dict[bytes, bytes] = dict(scope["headers"])

    def header(self, name: bytes) -> str:
        """Return a header's value, or an empty string."""
        value = self._headers.get(name)
        return "" if value is None else value.decode("latin-1")

    def repeats(self, name: bytes) -> bool:
        """Return whether a header was sent more than once."""
        return [key for key, _ in self.scope["headers"]].count(name) > 1

    @property
    def peer(self) -> Peer | None:
        """Return the owner of the connection's client certificate, if it has one."""
        return self.scope.get(PEER)

    def check_headers(self) -> None:
        """Raise a 431 when the headers are too large."""
        # The list and not the dict: the same header may come many times.
        size_bytes = sum(map(len, chain.from_iterable(self.scope["headers"])))
        if size_bytes > self.settings.header_limit_bytes:
            message = "the headers of the request are too large"
            raise ApiError(431, "RequestHeaderFieldsTooLarge", message)

    async def body(self) -> bytes:
        """Return the whole body; raise a 413 when it is over the limit, announced or received."""
        limit = self.settings.body_limit_bytes
        announced = self.header(b"content-length")
        if announced.isdigit() and int(announced) > limit:
            raise status.too_large(f"limit is {limit}")
        try:
            async with asyncio.timeout(self.settings.body_deadline.total_seconds()):
                return await self._read(limit)
        except TimeoutError:
            message = "the body of the request did not arrive in time"
            raise ApiError(408, "Timeout", message) from None

    async def _read(self, limit: int) -> bytes:
        chunks, size_bytes, more = [], 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk: bytes = message.get("body", b"")
            size_bytes += len(chunk)
            if size_bytes > limit:
                raise status.too_large(f"limit is {limit}")
            chunks.append(chunk)
            more = message.get("more_body", False)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class Chunks(Protocol):
    """A body that is streamed; after the first chunk was requested, a failure ends it instead of raising."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself."""
        ...

    async def aclose(self) -> None:
        """Release the source, whether or not a chunk was requested."""
        ...


class Response(msgspec.Struct, frozen=True):
    """A response with its whole body, or with `chunks` instead."""

    body: bytes
    code: int = 200
    content_type: Header = JSON
    headers: tuple[Header, ...] = ()
    cache: Header = _NO_CACHE
    chunks: Chunks | None = None


def parse_query(query_string: bytes) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the first value of each parameter, and all values of each."""
    repeated: dict[str, list[str]] = {}
    for key, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        repeated.setdefault(key, []).append(value)
    return {key: values[0] for key, values in repeated.items()}, repeated


def json_response(value: object, code: int = 200) -> Response:
    """Return a value as a JSON response."""
    return Response(msgspec.json.encode(value), code)


def error_response(error: ApiError) -> Response:
    """Return an error as a response."""
    headers: list[Header] = []
    if error.retry_after:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if error.text:
        return Response(error.text.encode(), error.code, TEXT, tuple(headers))
    return Response(error.encoded(), error.code, headers=tuple(headers))


async def send_response(send: Send, response: Response, warnings: Iterable[str] = ()) -> None:
    """Send a response with its whole body; warnings become headers."""
    headers = [
        response.content_type,
        response.cache,
        (b"content-length", str(len(response.body)).encode()),
        *response.headers,
        *((b"warning", _warning(text)) for text in warnings),
    ]
    if response.code == NOT_MODIFIED:
        # These headers replace the ones in the client's cache, so none may describe the body that is not sent.
        headers = [response.cache, *response.headers]
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def _warning(text: str) -> bytes:
    # A header is one line of Latin-1: everything else is escaped, so that no text can add a header.
    safe = text.encode("ascii", "backslashreplace").decode()
    safe = "".join(char if char.isprintable() else " " for char in safe)
    escaped = safe.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
