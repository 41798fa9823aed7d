"""The seam under the client: send one request, or stream one response.

`http.HttpTransport` implements it over sockets, `in_process.InProcessTransport` by calling an ASGI application. A transport
raises `ApiUnavailable` or `TimedOut` when there is no response; a response of any status is returned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `deadline` bounds the whole exchange, for a stream only the time to its headers."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    # Without a repr: bodies may be those of Secrets.
    body: bytes | None = field(default=None, repr=False)
    content_type: str | None = None
    accept: str = "application/json"
    deadline: timedelta = timedelta(seconds=30)
    # In addition to those of the transport, such as impersonation. Without a repr: one of them may be a credential.
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """A response whose body arrives in chunks."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Sends requests to one API server."""

    async def send(self, request: Request) -> Response:
        """Return the whole response, within the request's deadline."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open the response as a stream; leaving the context ends it on the server too."""
        ...

    async def close(self) -> None:
        """Close all connections; the transport cannot be used afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class CheckedTransport:
    """Calls a function right before each request, which it refuses by an error."""

    inner: Transport
    check: Callable[[], None]

    async def send(self, request: Request) -> Response:
        """Return the whole response, within the request's deadline."""
        self.check()
        return await self.inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open the response as a stream."""
        self.check()
        return self.inner.stream(request)

    async def close(self) -> None:
        """Close all connections."""
        await self.inner.close()
