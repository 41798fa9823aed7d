"""Answers that come in pieces from somewhere else: sent as they come, and ended with the client.

The source is closed when the client goes away, takes nothing for too long, or loses its right to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from math import inf

import msgspec

from bramley.apiserver.http.exchange import Chunks, Request, Response, Send
from bramley.base.clock import Clock

_END = {"type": "http.response.body", "body": b""}
_LOOKS = 4


class _Sending(msgspec.Struct):
    """One answer under way."""

    send: Send
    clock: Clock
    deadline: float
    since: float = inf

    async def run(self, answer: Response, chunks: Chunks) -> None:
        with contextlib.suppress(ConnectionError):
            headers = [answer.content_type, answer.cache, *answer.headers]
            await self.send(
                {"type": "http.response.start", "status": answer.code, "headers": headers}
            )
            async for chunk in chunks:
                self.since = self.clock.monotonic()
                await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
                self.since = inf
            await self.send(_END)

    @property
    def is_stuck(self) -> bool:
        return self.clock.monotonic() - self.since >= self.deadline


async def send_streamed(
    request: Request,
    answer: Response,
    chunks: Chunks,
    *,
    send: Send,
    clock: Clock,
    may: Callable[[], bool],
) -> None:
    """Send an answer while its client is there, takes it, and `may` tells that it has the right to it."""
    deadline = request.settings.send_deadline.total_seconds()
    sending = _Sending(send, clock, deadline)
    async with aclosing(chunks):
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(sending.run(answer, chunks))
            waiting = group.create_task(_until_gone(sending, request, may))
            telling.add_done_callback(lambda _: waiting.cancel())
            waiting.add_done_callback(lambda _: telling.cancel())
        if telling.cancelled() and not waiting.result():
            with contextlib.suppress(ConnectionError):
                await send(_END)


async def _until_gone(sending: _Sending, request: Request, may: Callable[[], bool]) -> bool:
    """Return when the client went away or takes nothing any more; False when it has no right to it any more."""
    while not sending.is_stuck:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(sending.deadline / _LOOKS):
                if (await request.receive())["type"] == "http.disconnect":
                    return True
        if not may():
            return False
    return True
