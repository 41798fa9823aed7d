"""One call: sent with patience, and its refusal raised as the error it means."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from bramley.base.clock import Clock
from bramley.kube import status
from bramley.kube.retrying import Patience
from bramley.kube.transport import Request, Response, Stream, Transport

LONGEST_REFUSAL_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Calls:
    """Sends requests and streams over a transport, repeated where `retrying` allows it."""

    transport: Transport
    clock: Clock
    patience: Patience

    async def read(self, request: Request) -> bytes:
        """Return the body of a request that changes nothing."""

        async def attempt(time: timedelta) -> bytes:
            return self._accepted(request, await self.transport.send(_within(request, time)))

        return await self.patience.read(attempt)

    async def write(self, request: Request) -> bytes:
        """Return the body of a request that changes something."""

        async def attempt(time: timedelta) -> Response:
            return await self.transport.send(_within(request, time))

        answer = await self.patience.write(attempt, wait_asked_by=self._wait_asked_by)
        return self._accepted(request, answer)

    async def write_once(self, request: Request) -> bytes:
        """Return the body of a request whose 429 is an answer to the caller, as with an eviction."""
        answer = await self.transport.send(_within(request, self.patience.deadline))
        return self._accepted(request, answer)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open a stream; only the opening is repeated."""
        async with AsyncExitStack() as kept:

            async def attempt(time: timedelta) -> Stream:
                async with AsyncExitStack() as trial:
                    opening = self.transport.stream(_within(request, time))
                    stream = await trial.enter_async_context(opening)
                    await self._check_head(request, stream)
                    await kept.enter_async_context(trial.pop_all())
                    return stream

            yield await self.patience.read(attempt)

    def _wait_asked_by(self, answer: Response) -> timedelta | None:
        return status.retry_after(answer.headers, self.clock) if answer.status == 429 else None

    def _accepted(self, request: Request, answer: Response) -> bytes:
        if 200 <= answer.status < 300:
            return answer.body
        wait = status.retry_after(answer.headers, self.clock)
        raise status.error(
            _about(request), status.parse(answer.body), code=answer.status, wait=wait
        )

    async def _check_head(self, request: Request, stream: Stream) -> None:
        # 204 is the real server's answer about the logs of a Pod that has none yet.
        if not 200 <= stream.status < 300:
            body = await _beginning(stream)
            self._accepted(request, Response(stream.status, stream.headers, body))


async def _beginning(stream: Stream) -> bytes:
    """Read a refusal's body, but no more of it than a refusal needs."""
    body = b""
    async for chunk in stream.chunks:
        body += chunk
        if len(body) > LONGEST_REFUSAL_BYTES:
            break
    return body[:LONGEST_REFUSAL_BYTES]


def _within(request: Request, time: timedelta) -> Request:
    return dataclasses.replace(request, deadline=time)


def _about(request: Request) -> str:
    return f"{request.method} {request.path}"
