"""The seam under the client: send one request, or stream one response.

Two sides implement it: `http.HttpTransport` over sockets and `in_process.InProcessTransport` straight into an ASGI
application. A transport raises `ApiUnavailable` or `TimedOut` when there is no answer; an answer of any status is returned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `deadline` bounds the whole exchange, of a stream only the time to its head."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    # Bodies stay out of every repr: they may be those of Secrets.
    body: bytes | None = field(default=None, repr=False)
    content_type: str | None = None
    accept: str = "application/json"
    deadline: timedelta = timedelta(seconds=30)
    # Beyond what a transport sends by itself, such as whom to act for.
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body comes in chunks as the server sends them."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Carries requests to one API server."""

    async def send(self, request: Request) -> Response:
        """Return the whole answer, within the request's deadline."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open the answer as a stream; leaving the context ends it on the server too."""
        ...

    async def close(self) -> None:
        """Give back what the transport holds; it cannot be used afterwards."""
        ...
