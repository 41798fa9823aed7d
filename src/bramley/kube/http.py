"""The transport over sockets: one aiohttp session to one server, its connections kept and used again.

It owns TLS, credentials, deadlines and bounds, and translates every network failure into one of `base.errors`. It never
repeats a request, except after a 401 when there is a new credential: such a request was not processed.
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
from bramley.kube.config import ClientConfig
from bramley.kube.credentials import Credential
from bramley.kube.transport import Request, Response, Stream

READ_BUFFER_BYTES = 1024 * 1024
LARGE_BODY_BYTES = 512 * 1024
# aiohttp's errors contain the repr of the TLS context.
_TLS_OBJECT = re.compile(r" ssl:(<[^>]*>|\S+)")
# A connection that was shut down closes after a few iterations of the event loop; at most this many are waited for.
_CLOSE_CHECKS = 200
_CLOSE_CHECK_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of connections, requests and response sizes."""

    requests_in_flight: int = 64
    idle_connection_seconds: float = 30.0
    max_response_bytes: int = 512 * 1024 * 1024
    # A vanished peer is detected after the idle time plus three unanswered keepalive probes.
    probe_after_seconds: int = 30
    probe_every_seconds: int = 10
    probes: int = 3


class HttpTransport:
    """Carries requests to a server over HTTP/1.1."""

    def __init__(self, config: ClientConfig, *, settings: Settings | None = None) -> None:
        self._config = config
        self._settings = settings or Settings()
        self._server = config.server.rstrip("/")
        self._contexts: dict[tls.ClientCertificate | None, Any] = {}
        self._slots = asyncio.Semaphore(self._settings.requests_in_flight)
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Return the whole response, within the request's deadline."""
        credential = await self._config.credentials.current()
        response = await self._send(request, credential)
        if response.status == 401 and await self._config.credentials.refused(credential):
            response = await self._send(request, await self._config.credentials.current())
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open the response as a stream; leaving the context closes its connection."""
        credential = await self._config.credentials.current()
        response = await self._open(request, credential)
        try:
            if response.status == 401 and await self._config.credentials.refused(credential):
                response.close()
                response = await self._open(request, await self._config.credentials.current())
            yield Stream(response.status, _headers(response), _chunks(request, response))
        finally:
            # Closed, not returned to the pool: the rest of the stream must not become the next request's response.
            response.close()

    async def close(self) -> None:
        """Close all connections; the transport cannot be used afterwards."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            await self._shut_down_sockets()

    async def _shut_down_sockets(self) -> None:
        """Shut down connections that still wait for the server's half of the TLS closure.

        The library does not track them, so they would outlive the event loop if the server never answers.
        """
        for each in self._open_sockets():
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(_CLOSE_CHECKS):
            if not self._open_sockets():
                return
            await asyncio.sleep(_CLOSE_CHECK_SECONDS)

    def _open_sockets(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() >= 0]

    async def _send(self, request: Request, credential: Credential) -> Response:
        with _translate_errors(request):
            async with (
                # The deadline includes the wait for a slot.
                _deadline(request),
                self._slots,
                self._request(request, credential) as response,
            ):
                body = await self._read_body(response)
                return Response(response.status, _headers(response), body)

    async def _open(self, request: Request, credential: Credential) -> aiohttp.ClientResponse:
        with _translate_errors(request):
            async with _deadline(request):
                return await self._request(request, credential)

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        remaining = self._settings.max_response_bytes
        async for chunk in response.content.iter_any():
            remaining -= len(chunk)
            if remaining < 0:
                response.close()
                raise aiohttp.ClientPayloadError("the response exceeds the size limit")
            parts.append(chunk)
        return b"".join(parts)

    def _request(
        self, request: Request, credential: Credential
    ) -> aiohttp.client._RequestContextManager:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return self._get_session().request(
            request.method,
            # Encoded already; encoding it again would name another object.
            URL(f"{self._server}{request.path}{query}", encoded=True),
            data=_payload(request.body),
            headers=self._request_headers(request, credential),
            ssl=self._context(credential),
            server_hostname=self._config.trust.server_name,
            proxy=self._config.proxy,
            allow_redirects=False,
        )

    def _request_headers(self, request: Request, credential: Credential) -> list[tuple[str, str]]:
        headers = [("Accept", request.accept), *self._config.headers, *request.headers]
        if request.content_type:
            headers.append(("Content-Type", request.content_type))
        if credential.authorization:
            headers.append(("Authorization", credential.authorization.reveal()))
        return headers

    def _context(self, credential: Credential) -> Any:
        if not self._server.startswith("https:"):
            return True
        context = self._contexts.get(credential.certificate)
        if context is None:
            context = tls.context(self._config.trust, credential.certificate)
            # Only the newest is kept: certificates of plugins keep changing.
            self._contexts = {credential.certificate: context}
        return context

    def _get_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise errors.ApiUnavailable("this client is closed")
        # At first use, because aiohttp needs a running event loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                headers=self._default_headers(),
                # Each request has its own deadline; aiohttp's default would end watches.
                timeout=aiohttp.ClientTimeout(total=None, connect=None),
                read_bufsize=READ_BUFFER_BYTES,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _connector(self) -> aiohttp.TCPConnector:
        # Requests are bounded by a semaphore instead, so that many watches cannot starve them of connections.
        return aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=self._settings.idle_connection_seconds,
            socket_factory=self._socket,
        )

    def _default_headers(self) -> dict[str, str]:
        encoding = "gzip" if self._config.compression else "identity"
        return {"User-Agent": f"bramley/{__version__}", "Accept-Encoding": encoding}

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # macOS has another name for the first of these options.
        idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
        options = {
            idle: self._settings.probe_after_seconds,
            getattr(socket, "TCP_KEEPINTVL", None): self._settings.probe_every_seconds,
            getattr(socket, "TCP_KEEPCNT", None): self._settings.probes,
        }
        for option, value in options.items():
            if option is not None:
                made.setsockopt(socket.IPPROTO_TCP, option, value)
        return made


async def _chunks(request: Request, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    # Everything that is buffered is yielded at once, in however many pieces the server sent it.
    with _translate_errors(request):
        async for chunk in response.content.iter_any():
            yield chunk


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    # aiohttp requires large bodies as a file, to send them in pieces.
    return io.BytesIO(body) if body and len(body) > LARGE_BODY_BYTES else body


def _headers(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    return {key.lower(): value for key, value in response.headers.items()}


def _deadline(request: Request) -> asyncio.Timeout:
    return asyncio.timeout(request.deadline.total_seconds())


@contextmanager
def _translate_errors(request: Request) -> Iterator[None]:
    """Translate errors of aiohttp and the network."""
    about = f"{request.method} {request.path}"
    try:
        yield
    except TimeoutError as error:
        raise errors.TimedOut(f"{about}: no response within {request.deadline}") from error
    except (aiohttp.ClientError, OSError) as error:
        reason = _TLS_OBJECT.sub("", str(error)) or type(error).__name__
        raise errors.ApiUnavailable(f"{about}: {reason}") from _without_headers(error)


def _without_headers(error: Exception) -> Exception:
    """Remove the headers from aiohttp's error: its repr would show the token."""
    if isinstance(error, aiohttp.ClientResponseError):
        sent = error.request_info
        bare = aiohttp.RequestInfo(sent.url, sent.method, CIMultiDictProxy(CIMultiDict()))
        error.request_info = bare
        error.args = (bare, ())
    return error
