"""The HTTP client of the dispatch server: demand for the autoscaler, signals for rolls, and reports of stopped Pods.

Every call has a deadline and a limit for the size of its response, and sends the token that the file has at that time.
Failures become errors of `base.errors`: Unavailable when a retry may help, Refused when it does not. No error contains the
token. Unknown fields of responses are ignored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from bramley import __version__
from bramley.api.meta import Count, Time
from bramley.api.names import dispatch
from bramley.base import errors
from bramley.base.secret import Secret, redact
from bramley.kube.credentials import bearer

T = TypeVar("T")

_EXCERPT_LENGTH = 256
# Much longer than the excerpt, so that the excerpt cannot end in a part of a token that the server repeats.
_ERROR_BYTES = 64 * 1024
_REFUSALS: dict[int, type[errors.Refused]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
}
# Client errors after which a later attempt may succeed: request timeout and too many requests.
_TEMPORARY = (408, 429)
_STOPPED_PARTS = tuple(
    dispatch.POD_STOPPED_PATH.removeprefix(dispatch.BASE_PATH).strip("/").split("/")
)


class ScalingSignals(msgspec.Struct, frozen=True, kw_only=True):
    """The demand for the runners of one pool."""

    claimed: Count
    queued: Count
    p95_concurrent_last_hour: Count
    # Older servers omit these two.
    occupied: Count = 0
    withheld: Count = 0


class PodSignals(msgspec.Struct, frozen=True, kw_only=True):
    """What the server knows of one Pod that has polled."""

    first_poll_at: Time


class ImageSignals(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that ended on Pods of one image; `finished` includes those that failed."""

    finished: Count
    failed: Count

    def __post_init__(self) -> None:
        if self.failed > self.finished:
            raise ValueError("`failed` exceeds `finished`")


class RollSignals(msgspec.Struct, frozen=True, kw_only=True):
    """Per Pod the time of its first poll, and per image the jobs that ended."""

    pool: str
    pods: dict[str, PodSignals] = {}
    images: dict[str, ImageSignals] = {}


class Signals(Protocol):
    """Answers questions about the demand and the Pods of a pool.

    Errors: Unavailable or Refused; a call ends within a few seconds.
    """

    async def desired_replicas(self, pool: str) -> ScalingSignals:
        """Return the demand for the runners of a pool."""
        ...

    async def roll_signals(self, pool: str, since: datetime) -> RollSignals | None:
        """Return the polls and the jobs of a pool since a time, or None if the server does not have them."""
        ...


class Sessions(Protocol):
    """Takes reports of Pods that stopped.

    Errors: Unavailable or Refused; a call ends within a few seconds.
    """

    async def pod_stopped(self, pod_name: str, ended_at: datetime) -> None:
        """Report that a Pod stopped; a repeated report is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Where the dispatch server is, and the limits of calls to it."""

    scaling_signals_url: str = ""
    sessions_url: str = ""
    token_file: Path | None = None
    deadline: timedelta = timedelta(seconds=5)
    max_response_bytes: int = 1024 * 1024


class DispatchClient:
    """Implements `Signals` and `Sessions` with one HTTP session, which exists inside the context."""

    def __init__(self, settings: DispatchSettings) -> None:
        self._settings = settings
        self._signals_url = _checked(settings.scaling_signals_url, "scaling-signals-url")
        self._sessions_url = _checked(settings.sessions_url, "sessions-url")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": f"bramley/{__version__}", "Accept-Encoding": "identity"},
            # Each call has a deadline that includes everything.
            timeout=aiohttp.ClientTimeout(total=None, connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A small compressed response could become a huge one.
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def desired_replicas(self, pool: str) -> ScalingSignals:
        """Return the demand for the runners of a pool."""
        url = _required(self._signals_url, "scaling-signals-url").update_query({"fleet": pool})
        _, body = await self._call("GET", url)
        return _decoded(body, ScalingSignals, url)

    async def roll_signals(self, pool: str, since: datetime) -> RollSignals | None:
        """Return the polls and the jobs of a pool since a time, or None if the server does not have them."""
        base = _required(self._signals_url, "scaling-signals-url")
        query = {"pool": pool, "since": _rfc3339(since)}
        url = base.with_path(dispatch.ROLL_SIGNALS_PATH).with_query(query)
        status, body = await self._call("GET", url, accepts=(404,))
        return None if status == 404 else _decoded(body, RollSignals, url)

    async def pod_stopped(self, pod_name: str, ended_at: datetime) -> None:
        """Report that a Pod stopped; a repeated report is harmless."""
        url = _required(self._sessions_url, "sessions-url").joinpath(*_STOPPED_PARTS)
        report = {"pod_name": pod_name, "ended_at": _rfc3339(ended_at)}
        await self._call("POST", url, report)

    async def _call(
        self, method: str, url: URL, report: Any = None, *, accepts: tuple[int, ...] = ()
    ) -> tuple[int, bytes]:
        """Return the status and the body of a response of 200, 204 or an accepted status."""
        token = self._token()
        about = f"{method} {url.with_query(None)}"
        try:
            async with asyncio.timeout(self._settings.deadline.total_seconds()):
                status, body = await self._exchange(method, url, report, token)
        except TimeoutError:
            raise errors.TimedOut(
                f"{about}: no response within {self._settings.deadline}"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            reason = redact(str(error), *_secrets(token)) or type(error).__name__
            # Not chained: errors of aiohttp may contain the headers of the request.
            raise errors.Unavailable(f"{about}: {reason}") from None
        if status in {200, 204, *accepts}:
            return status, body
        raise _refusal(about, status, body, token)

    async def _exchange(
        self, method: str, url: URL, report: Any, token: Secret | None
    ) -> tuple[int, bytes]:
        if self._session is None:
            raise errors.Unavailable("the client of the dispatch server is closed")
        headers = {"Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = token.reveal()
        # Redirects are not followed: the token is for this server only.
        async with self._session.request(
            method, url, json=report, headers=headers, allow_redirects=False
        ) as response:
            return response.status, await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        is_success = response.status < 300
        limit = self._settings.max_response_bytes if is_success else _ERROR_BYTES
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                if is_success:
                    raise aiohttp.ClientPayloadError("the response exceeds the size limit")
                break
        return bytes(body[:limit])

    def _token(self) -> Secret | None:
        path = self._settings.token_file
        if path is None:
            return None
        try:
            return bearer(path.read_text(), str(path))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise errors.BadConfiguration(f"{path}: the token cannot be read ({reason})") from error


def _checked(text: str, flag: str) -> URL | None:
    """Return the URL of a flag, or None if it is not set."""
    if not text:
        return None
    try:
        url = URL(text)
    except ValueError as error:
        raise errors.BadConfiguration(f"{flag} is not a valid URL: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise errors.BadConfiguration(f"{flag} must be a URL with http or https and a host")
    if url.user is not None or url.password is not None:
        raise errors.BadConfiguration(f"{flag} must not contain a user; use a token file")
    return url


def _required(url: URL | None, flag: str) -> URL:
    if url is None:
        raise errors.BadConfiguration(f"{flag} is not set")
    return url


def _rfc3339(when: datetime) -> str:
    return str(msgspec.to_builtins(when.astimezone(UTC)))


def _decoded(body: bytes, kind: type[T], url: URL) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    # A body that is not UTF-8 is no DecodeError.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Unavailable(
            f"GET {url.with_query(None)}: invalid response: {error}"
        ) from error


def _refusal(about: str, status: int, body: bytes, token: Secret | None) -> errors.BramleyError:
    excerpt = redact(body.decode(errors="replace"), *_secrets(token))[:_EXCERPT_LENGTH]
    message = f"{about}: status {status}: {excerpt!r}" if body else f"{about}: status {status}"
    if status >= 500 or status in _TEMPORARY:
        return errors.Unavailable(message)
    return _REFUSALS.get(status, errors.Refused)(message)


def _secrets(token: Secret | None) -> tuple[Secret, ...]:
    """Return what must not be shown: the header, and the token alone."""
    if token is None:
        return ()
    return token, Secret(token.reveal().partition(" ")[2])
