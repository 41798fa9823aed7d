"""The transport over sockets: one aiohttp session to one server, its connections kept and used again.

It owns TLS, credentials, deadlines and bounds, and turns every failure of the network into an error of ours. It never
repeats a request, but for a 401 that a fresh credential may turn into an answer: such a request was not looked at.
"""

from __future__ import annotations

import asyncio
import io
import re
import socket
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from bramley import __version__
from bramley.base import errors
from bramley.kube import tls
from bramley.kube.access import Access
from bramley.kube.credentials import Credential
from bramley.kube.transport import Request, Response, Stream

READ_BUFFER_BYTES = 1024 * 1024
LARGE_BODY_BYTES = 512 * 1024
# aiohttp's errors show the TLS context that was used, by its place in memory.
_TLS_OBJECT = re.compile(r" ssl:(<[^>]*>|\S+)")
# A connection that was cut is gone after a few turns of the loop; no more than this is waited for.
_TURNS_TO_CLOSE = 200
_TURN_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds on what is open, kept and read at once."""

    requests_in_flight: int = 64
    idle_connection_seconds: float = 30.0
    longest_answer_bytes: int = 512 * 1024 * 1024
    # A peer that vanished without a word is noticed after the first silence plus three unanswered probes.
    probe_after_seconds: int = 30
    probe_every_seconds: int = 10
    probes: int = 3


class HttpTransport:
    """Carries requests to a server over HTTP/1.1."""

    def __init__(self, access: Access, *, settings: Settings | None = None) -> None:
        self._access = access
        self._settings = settings or Settings()
        self._server = access.server.rstrip("/")
        self._contexts: dict[tls.ClientCertificate | None, Any] = {}
        self._slots = asyncio.Semaphore(self._settings.requests_in_flight)
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Return the whole answer, within the request's deadline."""
        credential = await self._access.credentials.current()
        answer = await self._send(request, credential)
        if answer.status == 401 and await self._access.credentials.refused(credential):
            answer = await self._send(request, await self._access.credentials.current())
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open the answer as a stream; leaving closes its connection."""
        credential = await self._access.credentials.current()
        response = await self._open(request, credential)
        try:
            if response.status == 401 and await self._access.credentials.refused(credential):
                response.close()
                response = await self._open(request, await self._access.credentials.current())
            yield Stream(response.status, _headers(response), _chunks(request, response))
        finally:
            response.close()

    async def close(self) -> None:
        """Close all connections; the transport cannot be used afterwards."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            await self._hang_up()

    async def _hang_up(self) -> None:
        """Cut connections that were left in the middle and still wait for the server's half of a TLS goodbye.

        The library forgets them, so they would outlive the loop: for ever, where the server is too busy or deaf to answer.
        """
        for each in self._open_sockets():
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS_TO_CLOSE):
            if not self._open_sockets():
                return
            await asyncio.sleep(_TURN_SECONDS)

    def _open_sockets(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() >= 0]

    async def _send(self, request: Request, credential: Credential) -> Response:
        with _translated(request):
            async with (
                _deadline(request),
                self._slots,
                self._request(request, credential) as answer,
            ):
                return Response(answer.status, _headers(answer), await self._whole(answer))

    async def _open(self, request: Request, credential: Credential) -> aiohttp.ClientResponse:
        with _translated(request):
            async with _deadline(request):
                return await self._request(request, credential)

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        left = self._settings.longest_answer_bytes
        async for part in response.content.iter_any():
            left -= len(part)
            if left < 0:
                response.close()
                raise aiohttp.ClientPayloadError("the answer is longer than we accept")
            parts.append(part)
        return b"".join(parts)

    def _request(
        self, request: Request, credential: Credential
    ) -> aiohttp.client._RequestContextManager:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return self._opened().request(
            request.method,
            URL(f"{self._server}{request.path}{query}", encoded=True),
            data=_payload(request.body),
            headers=self._request_headers(request, credential),
            ssl=self._context(credential),
            server_hostname=self._access.trust.server_name,
            proxy=self._access.proxy,
            allow_redirects=False,
        )

    def _request_headers(self, request: Request, credential: Credential) -> list[tuple[str, str]]:
        headers = [("Accept", request.accept), *self._access.headers, *request.headers]
        if request.content_type:
            headers.append(("Content-Type", request.content_type))
        if credential.authorization:
            headers.append(("Authorization", credential.authorization.reveal()))
        return headers

    def _context(self, credential: Credential) -> Any:
        if not self._server.startswith("https:"):
            return True
        found = self._contexts.get(credential.certificate)
        if found is None:
            found = tls.context(self._access.trust, credential.certificate)
            # Only the newest is kept: certificates of plugins change for ever.
            self._contexts = {credential.certificate: found}
        return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise errors.ApiUnavailable("this client was closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                headers=self._standing_headers(),
                timeout=aiohttp.ClientTimeout(total=None, connect=None),
                read_bufsize=READ_BUFFER_BYTES,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _connector(self) -> aiohttp.TCPConnector:
        # Requests are bounded by slots instead, so that many watches cannot starve them of connections.
        return aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=self._settings.idle_connection_seconds,
            socket_factory=self._socket,
        )

    def _standing_headers(self) -> dict[str, str]:
        encoding = "gzip" if self._access.compression else "identity"
        return {"User-Agent": f"bramley/{__version__}", "Accept-Encoding": encoding}

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # macOS calls the first of these differently, and has the others.
        idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
        wanted = {
            idle: self._settings.probe_after_seconds,
            getattr(socket, "TCP_KEEPINTVL", None): self._settings.probe_every_seconds,
            getattr(socket, "TCP_KEEPCNT", None): self._settings.probes,
        }
        for option, value in wanted.items():
            if option is not None:
                made.setsockopt(socket.IPPROTO_TCP, option, value)
        return made


async def _chunks(request: Request, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    # What lies in the buffer comes at once, however many pieces the server sent it in.
    with _translated(request):
        async for chunk in response.content.iter_any():
            yield chunk


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    # The library wants large bodies as a file, to send them piece by piece.
    return io.BytesIO(body) if body and len(body) > LARGE_BODY_BYTES else body


def _headers(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    return {key.lower(): value for key, value in response.headers.items()}


def _deadline(request: Request) -> asyncio.Timeout:
    return asyncio.timeout(request.deadline.total_seconds())


@contextmanager
def _translated(request: Request) -> Iterator[None]:
    """Turn what the network and its library raise into our errors."""
    about = f"{request.method} {request.path}"
    try:
        yield
    except TimeoutError as error:
        raise errors.TimedOut(f"{about}: no answer within {request.deadline}") from error
    except (aiohttp.ClientError, OSError) as error:
        reason = _TLS_OBJECT.sub("", str(error)) or type(error).__name__
        raise errors.ApiUnavailable(f"{about}: {reason}") from _without_headers(error)


def _without_headers(error: Exception) -> Exception:
    """Take our headers out of the library's error: its repr would show the token."""
    if isinstance(error, aiohttp.ClientResponseError):
        asked = error.request_info
        bare = aiohttp.RequestInfo(asked.url, asked.method, CIMultiDictProxy(CIMultiDict()))
        error.request_info = bare
        error.args = (bare, ())
    return error
