"""The agent's way to the API, and all that can happen to it: cut, silent, slow, or answering with an error."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bramley.base import errors
from bramley.kube.transport import Request, Response, Stream, Transport

_READS = ("GET", "HEAD")
# What the agent writes besides, Lease and Node, comes again by itself, and would use every mishap up.
_PODS = "/pods"


class Condition(StrEnum):
    """How the line is; on a silent one nobody hears that nobody is there."""

    WHOLE = "whole"
    CUT = "cut"
    SILENT = "silent"


class Mishap(StrEnum):
    """What becomes of one write to a Pod: `lost` is carried out and its answer never comes, of one unheard no watch tells."""

    REFUSED = "refused"
    LOST = "lost"
    CONFLICT = "409"
    THROTTLED = "429"
    BROKEN = "500"
    UNHEARD = "unheard"


_CODES = {Mishap.CONFLICT: 409, Mishap.THROTTLED: 429, Mishap.BROKEN: 500}


@dataclass(slots=True)
class Line:
    """One line for all lives of the agent."""

    condition: Condition = Condition.WHOLE
    lag: float = 0.0
    # What becomes of the next writes, and how many of the next watches begin too far back.
    mishaps: deque[Mishap] = field(default_factory=deque)
    expired: int = 0
    # Versions of which no watch tells.
    unheard: set[str] = field(default_factory=set)
    # Streams of an earlier number are lost, and notice it when they are next used.
    number: int = 0

    def drop(self) -> None:
        """Lose all open connections."""
        self.number += 1

    def mend(self) -> None:
        """Make all of it good."""
        self.condition, self.lag, self.expired = Condition.WHOLE, 0.0, 0
        self.mishaps.clear()
        self.drop()

    async def pass_through(self, request: Request) -> None:
        """Take what time the line takes; raise if there is no getting through."""
        if self.condition is Condition.CUT:
            raise errors.ApiUnavailable("nobody answers")
        if self.condition is Condition.SILENT:
            await asyncio.sleep(request.deadline.total_seconds())
            raise errors.TimedOut("no answer")
        if self.lag:
            await asyncio.sleep(self.lag)


@dataclass(frozen=True, slots=True)
class Wire:
    """A transport over the line."""

    line: Line
    inner: Transport

    async def send(self, request: Request) -> Response:
        """Send, with luck."""
        await self.line.pass_through(request)
        if request.method in _READS or _PODS not in request.path or not self.line.mishaps:
            return await self.inner.send(request)
        return await self._meet(self.line.mishaps.popleft(), request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Stream until the line is lost."""
        await self.line.pass_through(request)
        if self.line.expired and "watch" in request.query:
            self.line.expired -= 1
            yield Stream(410, {}, _once(_status(410)))
            return
        async with self.inner.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._while_whole(stream))

    async def close(self) -> None:
        """Close it."""
        await self.inner.close()

    async def _meet(self, mishap: Mishap, request: Request) -> Response:
        if mishap is Mishap.REFUSED:
            raise errors.ApiUnavailable("connection refused")
        if mishap is Mishap.LOST:
            await self.inner.send(request)
            raise errors.ApiUnavailable("connection lost")
        if mishap is Mishap.UNHEARD:
            answer = await self.inner.send(request)
            self.line.unheard.add(_version(answer.body))
            return answer
        code = _CODES[mishap]
        return Response(code, {"retry-after": "1"} if code == 429 else {}, _status(code))

    async def _while_whole(self, stream: Stream) -> AsyncIterator[bytes]:
        number = self.line.number
        async for chunk in stream.chunks:
            if number != self.line.number or self.line.condition is not Condition.WHOLE:
                raise errors.ApiUnavailable("connection lost")
            yield self._heard(chunk) if self.line.unheard else chunk

    def _heard(self, chunk: bytes) -> bytes:
        lines = chunk.splitlines(keepends=True)
        return b"".join(line for line in lines if not self._is_unheard(line))

    def _is_unheard(self, line: bytes) -> bool:
        try:
            event = json.loads(line)
        except ValueError:
            return False
        return event["type"] == "MODIFIED" and _version_of(event["object"]) in self.line.unheard


def _version(body: bytes) -> str:
    return _version_of(json.loads(body))


def _version_of(wire: dict[str, Any]) -> str:
    return str(wire.get("metadata", {}).get("resourceVersion", ""))


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _status(code: int) -> bytes:
    reasons = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return json.dumps({**told, "reason": reasons[code], "message": "as the story has it"}).encode()
