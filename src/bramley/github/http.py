"""The transport to GitHub over HTTP: one aiohttp session, deadlines, and a limit for the size of bodies.

Only reads follow redirects, which GitHub sends for repositories that were renamed or transferred, and only within the API: a token is
for this server only. No error contains a header.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from bramley import __version__
from bramley.base import errors
from bramley.kube.transport import Request, Response

DEFAULT_API_URL = "https://api.github.com"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# Only the beginning of the body of an error is shown; more is read so that a token cannot be cut in two and escape redaction.
_ERROR_BYTES = 64 * 1024
_REDIRECTS = {301, 302, 307, 308}
_MAX_REDIRECTS = 3


class HttpTransport:
    """Sends requests to one server; open inside the context."""

    def __init__(
        self, api_url: str = DEFAULT_API_URL, *, max_response_bytes: int = 16 * 1024 * 1024
    ) -> None:
        self._base = checked_url(api_url)
        self._max_response_bytes = max_response_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": f"bramley/{__version__}", "Accept-Encoding": "identity"},
            # Each request has a deadline that includes everything.
            timeout=aiohttp.ClientTimeout(total=None, connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A small compressed response could become a huge one.
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request) -> Response:
        """Return the whole response, within the request's deadline."""
        about = f"{request.method} {request.path}"
        try:
            async with asyncio.timeout(request.deadline.total_seconds()):
                return await self._exchange(request)
        except TimeoutError:
            raise errors.TimedOut(f"{about}: no response within {request.deadline}") from None
        except (aiohttp.ClientError, OSError) as error:
            # Neither chained nor shown whole: errors of aiohttp may contain the headers of the request.
            reason = error.strerror if isinstance(error, OSError) else None
            raise errors.GitHubUnavailable(f"{about}: {reason or type(error).__name__}") from None

    async def _exchange(self, request: Request) -> Response:
        headers = dict(request.headers) | {"Accept": request.accept}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        url = self._base.joinpath(request.path.lstrip("/"), encoded=True)
        url = url.with_query(dict(request.query))
        for _ in range(_MAX_REDIRECTS):
            response = await self._sent(request, url, headers)
            redirected = self._redirected(request, url, response)
            if redirected is None:
                return response
            url = redirected
        return await self._sent(request, url, headers)

    async def _sent(self, request: Request, url: URL, headers: dict[str, str]) -> Response:
        if self._session is None:
            raise errors.GitHubUnavailable("the connection to GitHub is closed")
        async with self._session.request(
            request.method, url, data=request.body, headers=headers, allow_redirects=False
        ) as response:
            lowered = {name.lower(): value for name, value in response.headers.items()}
            return Response(response.status, lowered, await self._read(response))

    def _redirected(self, request: Request, url: URL, response: Response) -> URL | None:
        """Return where a read is redirected to; None if it is not, or not within the API."""
        if request.method != "GET" or response.status not in _REDIRECTS:
            return None
        try:
            redirected = url.join(URL(response.headers["location"]))
        except (KeyError, ValueError):
            return None
        path = self._base.path.rstrip("/") + "/"
        is_inside = redirected.path.startswith(path) and ".." not in redirected.parts
        return redirected if is_inside and redirected.origin() == self._base.origin() else None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        is_success = response.status < 300
        limit = self._max_response_bytes if is_success else _ERROR_BYTES
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                if is_success:
                    raise errors.GitHubUnavailable("the response exceeds the size limit")
                break
        return bytes(body[:limit])


def checked_url(text: str) -> URL:
    """Return the base URL of the API, as https://api.github.com or https://HOST/api/v3; BadConfiguration if it is unusable."""
    try:
        url = URL(text.rstrip("/"))
    except ValueError as error:
        raise errors.BadConfiguration("the URL of GitHub's API is not a valid URL") from error
    if url.user is not None or url.password is not None or url.query_string:
        raise errors.BadConfiguration("the URL of GitHub's API must have neither user nor query")
    is_private = url.scheme == "https" or (url.scheme == "http" and url.host in _LOOPBACK)
    if not url.host or not is_private:
        raise errors.BadConfiguration(
            "the URL of GitHub's API must begin with https:// and a host, "
            "such as https://api.github.com or https://HOST/api/v3; http:// is for loopback addresses only"
        )
    return url
