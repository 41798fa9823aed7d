"""Every request to GitHub goes through this client: deadlines, retries, rate limits, ETags, and errors without credentials.

Only calls that may be repeated are retried, after 5xx and transport failures, with jittered backoff and within the deadline of
the call. Whether one that may not be repeated was processed is unknown after such a failure. A rate limit is never waited for
here: RateLimited tells the caller when to try again.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec
from prometheus_client import CollectorRegistry

from bramley.base import errors, metrics
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.base.secret import HIDDEN, Secret, redact
from bramley.github.rate_limits import RateLimits, server_time
from bramley.kube.transport import Request, Response

API_VERSION = "2022-11-28"
_EXCERPT_LENGTH = 512
_BACKOFF = Backoff(initial=timedelta(milliseconds=250), maximum=timedelta(seconds=4))
# Credentials in their known forms, of which JIT configurations begin with "eyI" and JWTs with "eyJ", beside the one that was sent; also a part of one at the end of a cut body. Every alternative
# consumes all that it has scanned, so that no body takes long.
_CREDENTIAL = re.compile(
    r"\b(?:gh[a-z]_|github_pat_|v1\.)\w+|\bey[IJ][\w.+/=-]*|-----BEGIN [^-]+-----[^-]*(?:-----END [^-]+-----)?"
)
# So many characters of the token that was sent are hidden wherever they occur: a part may be quoted without its beginning.
_PART_LENGTH = 12
_REFUSALS: dict[int, type[errors.BramleyError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.AlreadyExists,
    422: errors.BadRequest,
}
_SKEW_WORTH_NAMING = timedelta(seconds=30)
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="next"')


class Transport(Protocol):
    """Sends a request: `http.HttpTransport`, or `kube.in_process.InProcessTransport` for an application of this process.

    Errors: Unavailable when there is no response; a response of any status is returned.
    """

    async def send(self, request: Request) -> Response:
        """Return the whole response, within the request's deadline."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of calls: one attempt, all attempts of a call, retries, pages of a list, responses stored for their ETag."""

    attempt_deadline: timedelta = timedelta(seconds=5)
    deadline: timedelta = timedelta(seconds=10)
    retries: int = 3
    backoff: Backoff = _BACKOFF
    max_pages: int = 200
    max_stored_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Credential:
    """A token, and the scope whose budget it uses: `app`, or the installation."""

    scope: str
    token: Secret


@dataclass(frozen=True, slots=True)
class Call:
    """One call; `repeatable` if sending it twice is harmless."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = field(default=None, repr=False)
    repeatable: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


Send = Callable[[Call], Awaitable[Response]]


class Etags:
    """The last responses with an ETag, by scope and call; the least recently used are dropped."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._responses: OrderedDict[tuple[str, ...], Response] = OrderedDict()

    def find(self, scope: str, call: Call) -> Response | None:
        """Return the stored response of a GET."""
        key = _etag_key(scope, call)
        if key not in self._responses:
            return None
        self._responses.move_to_end(key)
        return self._responses[key]

    def store(self, scope: str, call: Call, response: Response) -> None:
        """Store a response of a GET that has an ETag."""
        if call.method != "GET" or response.status != 200 or "etag" not in response.headers:
            return
        key = _etag_key(scope, call)
        replaced = self._responses.pop(key, None)
        self._bytes += _size(response) - (0 if replaced is None else _size(replaced))
        self._responses[key] = response
        while self._bytes > self._max_bytes:
            self._bytes -= _size(self._responses.popitem(last=False)[1])


class GitHubClient:
    """Sends calls with a credential and returns successful responses; everything else is an error of `base.errors`."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        registry: CollectorRegistry,
        rng: random.Random | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._rng = rng or random.Random()
        self._settings = settings or Settings()
        self._etags = Etags(self._settings.max_stored_bytes)
        self._requests = metrics.counter(
            registry, "bramley_github_requests_total", "Requests", "method", "status"
        )
        self.rate_limits = RateLimits(clock, registry)

    async def send(self, call: Call, credential: Credential) -> Response:
        """Return a response of 2xx, within the deadline of the call."""
        failures: list[errors.Unavailable] = []
        try:
            async with asyncio.timeout(self._settings.deadline.total_seconds()):
                return await self._attempts(call, credential, failures)
        except TimeoutError:
            last = f"; the last attempt failed: {failures[-1]}" if failures else ""
            raise errors.TimedOut(
                f"{call}: no response within {self._settings.deadline}{last}"
            ) from None

    async def pages(self, call: Call, send: Send) -> AsyncIterator[Response]:
        """Yield the pages of a list, each sent by `send` with its own deadline and a current credential."""
        for _ in range(self._settings.max_pages):
            response = await send(call)
            yield response
            query = _next_query(response)
            if query is None:
                return
            call = replace(call, query=query)
        raise errors.Refused(f"{call}: the list has more than {self._settings.max_pages} pages")

    async def _attempts(
        self, call: Call, credential: Credential, failures: list[errors.Unavailable]
    ) -> Response:
        while True:
            self.rate_limits.check(credential.scope, str(call))
            try:
                return await self._attempt(call, credential)
            except errors.Unavailable as error:
                failures.append(error)
                if not call.repeatable or len(failures) > self._settings.retries:
                    raise
            delay = self._settings.backoff.delay(len(failures), self._rng)
            await asyncio.sleep(delay.total_seconds())

    async def _attempt(self, call: Call, credential: Credential) -> Response:
        known = self._etags.find(credential.scope, call)
        response = await self._exchange(call, credential, known)
        self.rate_limits.record(credential.scope, response, str(call))
        if response.status == 304 and known is not None:
            return known
        if not 200 <= response.status < 300:
            raise self._refusal(call, credential, response)
        self._etags.store(credential.scope, call, response)
        return response

    async def _exchange(
        self, call: Call, credential: Credential, known: Response | None
    ) -> Response:
        request = Request(
            call.method,
            call.path,
            query=call.query,
            body=None if call.body is None else msgspec.json.encode(call.body),
            content_type=None if call.body is None else "application/json",
            accept="application/vnd.github+json",
            deadline=self._settings.attempt_deadline,
            headers=_headers(credential, known),
        )
        status = "none"
        try:
            response = await self._transport.send(request)
            status = str(response.status)
            return response
        finally:
            self._requests.of(call.method, status).inc()

    def _refusal(
        self, call: Call, credential: Credential, response: Response
    ) -> errors.BramleyError:
        excerpt = _redacted(response.body.decode(errors="replace"), credential.token)
        message = f"{call}: status {response.status}: {excerpt[:_EXCERPT_LENGTH]!r}"
        if response.status >= 500 or response.status == 408:
            return errors.GitHubUnavailable(message)
        if response.status == 401:
            message += self._clock_difference(response)
        return _REFUSALS.get(response.status, errors.Refused)(message)

    def _clock_difference(self, response: Response) -> str:
        """Return a hint if the clocks differ: GitHub then rejects JWTs with correct signatures."""
        theirs = server_time(response.headers)
        if theirs is None or abs(theirs - self._clock.now()) < _SKEW_WORTH_NAMING:
            return ""
        seconds = (self._clock.now() - theirs).total_seconds()
        return f" (the local clock differs from GitHub's by {seconds:+.0f} s)"


def _headers(credential: Credential, known: Response | None) -> tuple[tuple[str, str], ...]:
    headers = (
        ("X-GitHub-Api-Version", API_VERSION),
        ("Authorization", f"Bearer {credential.token.reveal()}"),
    )
    return headers if known is None else (*headers, ("If-None-Match", known.headers["etag"]))


def _redacted(text: str, token: Secret) -> str:
    return _CREDENTIAL.sub(HIDDEN, _without_parts(redact(text, token), token.reveal()))


def _without_parts(text: str, token: str) -> str:
    parts = {token[at : at + _PART_LENGTH] for at in range(len(token) - _PART_LENGTH + 1)}
    kept, end = [], 0
    for at in range(len(text)):
        if text[at : at + _PART_LENGTH] in parts:
            kept += [text[end:at], HIDDEN if at >= end else ""]
            end = at + _PART_LENGTH
    return "".join((*kept, text[end:]))


def _etag_key(scope: str, call: Call) -> tuple[str, ...]:
    query = (f"{name}={value}" for name, value in sorted(call.query.items()))
    return scope, call.method, call.path, *query


def _size(response: Response) -> int:
    # An estimate of the headers, so that empty bodies are bounded too.
    return len(response.body) + 1024


def _next_query(response: Response) -> dict[str, str] | None:
    """Return the query of the next page. Its host and path are ignored: the token is not sent anywhere else."""
    found = _NEXT.search(response.headers.get("link", ""))
    return None if found is None else dict(parse_qsl(urlsplit(found[1]).query))
