"""API calls over a transport: deadlines, retries, and refusals raised as errors.

A read changes nothing, so it is repeated with growing pauses until its deadline. A write is never repeated blindly: after a
timeout or a broken connection it is unknown whether it happened. The one exception is a 429 with Retry-After, by which the
server states that it did not process the request.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube import status
from bramley.kube.transport import Request, Response, Stream, Transport

T = TypeVar("T")

logger = log.get(__name__)

MAX_REFUSAL_BYTES = 64 * 1024
_TRANSIENT = (errors.ApiUnavailable, errors.TimedOut, errors.RateLimited)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The deadline of a call, the timeout of one attempt of a read, and the pauses between attempts."""

    deadline: timedelta = timedelta(seconds=30)
    attempt: timedelta = timedelta(seconds=10)
    backoff: Backoff = field(default_factory=lambda: Backoff(maximum=timedelta(seconds=5)))
    rng: random.Random = field(default_factory=random.Random)

    async def read(self, attempt: Callable[[timedelta], Awaitable[T]]) -> T:
        """Call `attempt` with its timeout until it succeeds or the deadline is reached."""
        ends = _now() + self.deadline.total_seconds()
        failures = 0
        while True:
            try:
                return await attempt(min(self.attempt, _remaining(ends)))
            except _TRANSIENT as error:
                failures += 1
                pause = self._pause(error, failures)
                if _now() + pause.total_seconds() >= ends:
                    raise
                logger.debug("Retrying read", after=pause, failures=failures, reason=error.reason)
            await asyncio.sleep(pause.total_seconds())

    async def write(
        self,
        attempt: Callable[[timedelta], Awaitable[T]],
        *,
        requested_wait: Callable[[T], timedelta | None],
    ) -> T:
        """Call `attempt`, and again only if the response says that the request was not processed."""
        ends = _now() + self.deadline.total_seconds()
        while True:
            response = await attempt(_remaining(ends))
            pause = requested_wait(response)
            if pause is None or _now() + pause.total_seconds() >= ends:
                return response
            logger.debug("Retrying write after 429", after=pause)
            await asyncio.sleep(pause.total_seconds())

    def _pause(self, error: errors.BramleyError, failures: int) -> timedelta:
        growing = self.backoff.delay(failures, self.rng)
        return max(error.after, growing) if isinstance(error, errors.RateLimited) else growing


def _now() -> float:
    # The event loop's time and not a clock's, because the pauses are the loop's too.
    return asyncio.get_running_loop().time()


def _remaining(ends: float) -> timedelta:
    return timedelta(seconds=max(ends - _now(), 0.0))


@dataclass(frozen=True, slots=True)
class ApiCalls:
    """Sends requests and opens streams over a transport, repeated where the policy allows it."""

    transport: Transport
    clock: Clock
    retry_policy: RetryPolicy

    async def read(self, request: Request) -> bytes:
        """Return the body of a request that changes nothing."""

        async def attempt(limit: timedelta) -> bytes:
            response = await self.transport.send(_with_deadline(request, limit))
            return self._checked_body(request, response)

        return await self.retry_policy.read(attempt)

    async def write(self, request: Request) -> bytes:
        """Return the body of a request that changes something."""

        async def attempt(limit: timedelta) -> Response:
            return await self.transport.send(_with_deadline(request, limit))

        response = await self.retry_policy.write(attempt, requested_wait=self._requested_wait)
        return self._checked_body(request, response)

    async def write_once(self, request: Request) -> bytes:
        """Return the body of a request whose 429 concerns the caller, as with an eviction."""
        response = await self.transport.send(_with_deadline(request, self.retry_policy.deadline))
        return self._checked_body(request, response)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open a stream; only the opening is repeated."""
        async with AsyncExitStack() as opened:

            async def attempt(limit: timedelta) -> Stream:
                async with AsyncExitStack() as attempted:
                    opening = self.transport.stream(_with_deadline(request, limit))
                    stream = await attempted.enter_async_context(opening)
                    await self._check_status(request, stream)
                    # Only a stream that was accepted outlives its attempt.
                    await opened.enter_async_context(attempted.pop_all())
                    return stream

            yield await self.retry_policy.read(attempt)

    def _requested_wait(self, response: Response) -> timedelta | None:
        # A 429 without Retry-After, as from a proxy, does not prove that the server dropped the request.
        if response.status != 429:
            return None
        return status.retry_after(response.headers, self.clock)

    def _checked_body(self, request: Request, response: Response) -> bytes:
        if 200 <= response.status < 300:
            return response.body
        wait = status.retry_after(response.headers, self.clock)
        about = f"{request.method} {request.path}"
        raise status.error(about, status.parse(response.body), code=response.status, wait=wait)

    async def _check_status(self, request: Request, stream: Stream) -> None:
        # 204 is the real server's response for the logs of a Pod that has none yet.
        if not 200 <= stream.status < 300:
            body = await _refusal_body(stream)
            self._checked_body(request, Response(stream.status, stream.headers, body))


async def log_chunks(
    opening: AbstractAsyncContextManager[Stream], *, silence: timedelta
) -> AsyncGenerator[bytes, None]:
    """Yield a container's output as it arrives; raise TimedOut after too long a silence."""
    async with opening as stream:
        while True:
            try:
                async with asyncio.timeout(silence.total_seconds()):
                    chunk = await anext(stream.chunks, None)
            except TimeoutError:
                raise errors.TimedOut(f"no output came for {silence}") from None
            if chunk is None:
                return
            yield chunk


async def _refusal_body(stream: Stream) -> bytes:
    """Read a refusal's body up to a limit."""
    body = b""
    async for chunk in stream.chunks:
        body += chunk
        if len(body) > MAX_REFUSAL_BYTES:
            break
    return body[:MAX_REFUSAL_BYTES]


def _with_deadline(request: Request, deadline: timedelta) -> Request:
    return dataclasses.replace(request, deadline=deadline)
