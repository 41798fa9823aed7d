"""The client for the kubelet endpoints of agents: one transport per address, cached, with bounds on each response.

Like kube-apiserver it verifies the certificates of agents only if it is given an authority for that: most are self-signed.
Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.auth.bootstrap import KUBELET_CLIENT
from bramley.apiserver.pki.tls import Identity
from bramley.apiserver.registry.resources import Json
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.credentials import Credential, Credentials
from bramley.kube.tls import ClientCertificate, Trust
from bramley.kube.transport import Request, Response, Stream

if TYPE_CHECKING:
    # Most servers never read a log, and aiohttp takes ten megabytes.
    from bramley.kube.http import HttpTransport

IssueCertificate = Callable[[str, timedelta], Identity]

CERTIFICATE_LIFETIME = timedelta(days=1)
# Until an agent begins to respond; the rest of a response may take longer.
RESPONSE_TIMEOUT = timedelta(seconds=15)
_MAX_TRANSPORTS = 256
_MAX_RESPONSE_BYTES = 4 * 1024 * 1024
# The hostname of a Mac is often resolvable by no other machine, so addresses come first.
_PREFERRED_ADDRESSES = ("InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname")
_DEFAULT_PORT = 10250


def kubelet_url(node: Json) -> str:
    """Return the URL of a Node's agent; raise the 500 of kube-apiserver if the Node has no usable address."""
    status = node.get("status", {})
    addresses = [
        (each.get("type", ""), each.get("address", "")) for each in status.get("addresses", [])
    ]
    ranked = sorted(
        (_PREFERRED_ADDRESSES.index(kind), address)
        for kind, address in addresses
        if kind in _PREFERRED_ADDRESSES
    )
    if not ranked:
        listed = " ".join(f"{{{kind} {address}}}" for kind, address in addresses)
        raise ApiError(500, "", f"no preferred addresses found; known addresses: [{listed}]")
    host = ranked[0][1]
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)
    bracketed = f"[{host}]" if ":" in host else host
    return f"https://{bracketed}:{port if port > 0 else _DEFAULT_PORT}"


class KubeletCredentials:
    """The client certificate of the API server to agents, issued by its own authority and kept in memory.

    A certificate and no token: a server that pretends to be an agent learns nothing from it. It is valid for a day, renewed in
    time, and its owner may do nothing but call agents.
    """

    def __init__(self, issue: IssueCertificate, clock: Clock) -> None:
        self._issue = issue
        self._clock = clock
        self._current: Credential | None = None
        self._renew_at: datetime | None = None

    async def current(self) -> Credential:
        """Return the certificate, renewed after half of its lifetime."""
        now = self._clock.now()
        if self._current is None or self._renew_at is None or now >= self._renew_at:
            issued = self._issue(KUBELET_CLIENT, CERTIFICATE_LIFETIME)
            certificate = ClientCertificate(issued.certificate.decode(), issued.key)
            self._current = Credential(certificate=certificate)
            self._renew_at = now + CERTIFICATE_LIFETIME / 2
        return self._current

    async def refused(self, credential: Credential) -> bool:
        """Return whether there is a newer certificate; an agent that does not know our authority refuses every one."""
        return credential != self._current


class KubeletClient(Protocol):
    """Calls agents as the API server.

    Errors: ApiUnavailable or TimedOut where no agent responds; a response of any status is returned.
    """

    async def get(self, url: str, path: str, *, within: timedelta) -> Response:
        """Return a short response of the agent at this URL."""
        ...

    def stream(
        self, url: str, path: str, query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a response of the agent at this URL; leaving the context closes it."""
        ...

    async def close(self) -> None:
        """End all streams and refuse further calls."""
        ...


class HttpKubeletClient:
    """Calls agents over HTTPS."""

    def __init__(self, credentials: Credentials, *, authority: str, checked: bool = False) -> None:
        """Authenticate by `credentials`; verify agents by `authority` if `checked`."""
        self._credentials = credentials
        # An authority is given in any case: without one the system's would be loaded, for nothing.
        self._trust = Trust(authority, verify=checked, source="the agents' authority")
        self._transports: OrderedDict[str, HttpTransport] = OrderedDict()
        # One per stream that waits for its next chunk, so that `close` can end the wait.
        self._waits: set[asyncio.Timeout] = set()
        self._closed = False

    async def get(self, url: str, path: str, *, within: timedelta) -> Response:
        """Return a short response of the agent at this URL."""
        transport = await self._transport(url)
        return await transport.send(Request("GET", path, deadline=within, accept="*/*"))

    @asynccontextmanager
    async def stream(self, url: str, path: str, query: Mapping[str, str]) -> AsyncIterator[Stream]:
        """Open a response of the agent at this URL; leaving the context closes it."""
        request = Request("GET", path, query, accept="*/*", deadline=RESPONSE_TIMEOUT)
        transport = await self._transport(url)
        async with transport.stream(request) as response:
            yield dataclasses.replace(response, chunks=self._until_closed(response.chunks))

    async def _until_closed(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(None) as wait:
                    self._waits.add(wait)
                    chunk = await anext(chunks, None)
            except TimeoutError as error:
                raise errors.ApiUnavailable("the server is shutting down") from error
            finally:
                self._waits.discard(wait)
            if chunk is None:
                return
            yield chunk

    async def close(self) -> None:
        """End all streams and refuse further calls."""
        self._closed = True
        # Before the transports: closing a connection does not wake a reader that waits for its peer.
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())
        while self._transports:
            _, transport = self._transports.popitem()
            await transport.close()

    async def _transport(self, url: str) -> HttpTransport:
        if self._closed:
            raise errors.ApiUnavailable("the server is shutting down")
        transport = self._transports.get(url)
        if transport is None:
            transport = self._transports[url] = self._connect(url)
        self._transports.move_to_end(url)
        if len(self._transports) > _MAX_TRANSPORTS:
            _, oldest = self._transports.popitem(last=False)
            await oldest.close()
        return transport

    def _connect(self, url: str) -> HttpTransport:
        from bramley.kube.config import ClientConfig
        from bramley.kube.http import HttpTransport, Settings

        access = ClientConfig(
            url, trust=self._trust, credentials=self._credentials, compression=False
        )
        return HttpTransport(access, settings=Settings(max_response_bytes=_MAX_RESPONSE_BYTES))
