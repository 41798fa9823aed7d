"""One request and its answer, between ASGI's messages and the handlers.

Handlers get a `Request` and return an `Answer`; only watches send for themselves, and `streaming` what comes in pieces. Nothing here knows a resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import ANONYMOUS, User

if TYPE_CHECKING:
    from bramley.apiserver.auth.peers import Peer
    from bramley.apiserver.http.paths import Target

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = (b"content-type", b"application/json")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
# Where the server puts the owner of the connection into a request's scope.
PEER = "bramley.peer"
NOT_MODIFIED = 304
# What nobody is told, and is counted only: the client went away before there was an answer.
CLIENT_LEFT = 499
_NO_CACHE = (b"cache-control", b"no-cache, private")


class Disconnected(Exception):
    """The client went away before its request was complete."""


class Request:
    """One request; the body is read when a handler asks for it."""

    __slots__ = (
        "_headers",
        "caller",
        "code",
        "method",
        "path",
        "query",
        "receive",
        "repeated",
        "scope",
        "sender",
        "settings",
        "target",
        "warnings",
    )

    def __init__(self, scope: Scope, receive: Receive, settings: Settings) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.receive = receive
        self.settings = settings
        self.scope = scope
        # Who sent it and for whom it is answered; two users only if the one acts for the other.
        self.caller: User = ANONYMOUS
        self.sender: User = ANONYMOUS
        # What it turned out to be about, and how it was answered.
        self.target: Target | None = None
        self.code = CLIENT_LEFT
        self.warnings: list[str] = []
        self.query: dict[str, str] = {}
        self.repeated: dict[str, list[str]] = {}
        if scope["query_string"]:
            self.query, self.repeated = parse_query(scope["query_string"])
        self._headers: dict[bytes, bytes] = dict(scope["headers"])

    def header(self, name: bytes) -> str:
        """Return a header's value, or an empty text."""
        value = self._headers.get(name)
        return "" if value is None else value.decode("latin-1")

    def repeats(self, name: bytes) -> bool:
        """Tell whether a header was sent more than once."""
        return [key for key, _ in self.scope["headers"]].count(name) > 1

    @property
    def peer(self) -> Peer | None:
        """Return the owner of the connection's client certificate, if it has one."""
        return self.scope.get(PEER)

    def check_headers(self) -> None:
        """Raise a 431 when the headers are too large."""
        # All of them: the same header may come many times.
        size_bytes = sum(map(len, chain.from_iterable(self.scope["headers"])))
        if size_bytes > self.settings.header_limit_bytes:
            message = "the headers of the request are too large"
            raise ApiError(431, "RequestHeaderFieldsTooLarge", message)

    async def body(self) -> bytes:
        """Return the whole body; raise a 413 when it is over the limit, wherever the limit is passed."""
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
    """A body that comes in pieces; it ends instead of raising once the first piece was asked for."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself."""
        ...

    async def aclose(self) -> None:
        """Give back what the source holds, whether or not a piece was asked for."""
        ...


class Answer(msgspec.Struct, frozen=True):
    """An answer: with its whole body, or with `chunks` instead; warnings become headers."""

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


def json_answer(value: object, code: int = 200) -> Answer:
    """Return a value as an answer."""
    return Answer(msgspec.json.encode(value), code)


def error_answer(error: ApiError) -> Answer:
    """Return a refusal as an answer."""
    headers: list[Header] = []
    if error.retry_after:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if error.text:
        return Answer(error.text.encode(), error.code, TEXT, tuple(headers))
    return Answer(error.encoded(), error.code, headers=tuple(headers))


async def send_answer(send: Send, answer: Answer, warnings: Iterable[str] = ()) -> None:
    """Send a whole answer."""
    headers = [
        answer.content_type,
        answer.cache,
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
        *((b"warning", _warning(text)) for text in warnings),
    ]
    if answer.code == NOT_MODIFIED:
        # What stands here replaces what the client keeps, so nothing may be said about the body that is not sent.
        headers = [answer.cache, *answer.headers]
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _warning(text: str) -> bytes:
    # A header is one line of Latin-1; what does not fit is escaped, never passed on raw.
    safe = text.encode("ascii", "backslashreplace").decode()
    safe = "".join(char if char.isprintable() else " " for char in safe)
    escaped = safe.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
