"""Lines to agents: one transport per address, kept for a while, with bounds on each answer.

Like a kube-apiserver it checks the certificates of agents only if it is given an authority to check them by: most are
self-signed. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from bramley.base import errors
from bramley.kube.credentials import Credentials
from bramley.kube.tls import Trust
from bramley.kube.transport import Request, Response, Stream

if TYPE_CHECKING:
    # Most servers are never asked for a log, and aiohttp takes ten megabytes.
    from bramley.kube.http import HttpTransport

_KEPT = 256
_LONGEST_ANSWER_BYTES = 4 * 1024 * 1024
# Until an agent answers at all; what it then sends may take its time.
ANSWER_WITHIN = timedelta(seconds=15)


class Lines(Protocol):
    """Speaks to agents as the API.

    Errors: ApiUnavailable or TimedOut where no agent answers; an answer of any status is returned.
    """

    async def get(self, url: str, path: str, *, within: timedelta) -> Response:
        """Return a short answer of the agent there."""
        ...

    def stream(
        self, url: str, path: str, query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Stream]:
        """Open an answer of the agent there; leaving closes it."""
        ...

    async def close(self) -> None:
        """End all streams; there will be no more."""
        ...


class NodeLines:
    """Lines over sockets."""

    def __init__(self, credentials: Credentials, *, authority: str, checked: bool = False) -> None:
        """Prove ourselves by `credentials`; check agents by `authority` if they are to be `checked`."""
        self._credentials = credentials
        # An authority stands there in any case: without one the system's would be read, for nothing.
        self._trust = Trust(authority, verify=checked, source="the agents' authority")
        self._transports: OrderedDict[str, HttpTransport] = OrderedDict()
        # Of everybody who waits for the next piece of a stream.
        self._patience: set[asyncio.Timeout] = set()
        self._closed = False

    async def get(self, url: str, path: str, *, within: timedelta) -> Response:
        """Return a short answer of the agent there."""
        transport = await self._transport(url)
        return await transport.send(Request("GET", path, deadline=within, accept="*/*"))

    @asynccontextmanager
    async def stream(self, url: str, path: str, query: Mapping[str, str]) -> AsyncIterator[Stream]:
        """Open an answer of the agent there; leaving closes it."""
        request = Request("GET", path, query, accept="*/*", deadline=ANSWER_WITHIN)
        transport = await self._transport(url)
        async with transport.stream(request) as found:
            yield dataclasses.replace(found, chunks=self._until_closed(found.chunks))

    async def _until_closed(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(None) as patience:
                    self._patience.add(patience)
                    chunk = await anext(chunks, None)
            except TimeoutError as error:
                raise errors.ApiUnavailable("the server is shutting down") from error
            finally:
                self._patience.discard(patience)
            if chunk is None:
                return
            yield chunk

    async def close(self) -> None:
        """End all streams; there will be no more."""
        self._closed = True
        # A connection that is closed says goodbye first, and its reader would wait for that.
        for patience in self._patience:
            patience.reschedule(asyncio.get_running_loop().time())
        while self._transports:
            _, transport = self._transports.popitem()
            await transport.close()

    async def _transport(self, url: str) -> HttpTransport:
        if self._closed:
            raise errors.ApiUnavailable("the server is shutting down")
        found = self._transports.get(url)
        if found is None:
            found = self._transports[url] = self._opened(url)
        self._transports.move_to_end(url)
        if len(self._transports) > _KEPT:
            _, oldest = self._transports.popitem(last=False)
            await oldest.close()
        return found

    def _opened(self, url: str) -> HttpTransport:
        from bramley.kube.access import Access
        from bramley.kube.http import HttpTransport, Settings

        access = Access(url, trust=self._trust, credentials=self._credentials, compression=False)
        return HttpTransport(access, settings=Settings(longest_answer_bytes=_LONGEST_ANSWER_BYTES))
