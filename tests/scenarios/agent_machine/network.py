"""The agent's connection to the API, with faults: down, timing out, slow, or answering with an error."""

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
# Other writes of the agent, to Lease and Node, are periodic and would use up every fault.
_PODS = "/pods"


class LinkState(StrEnum):
    """The state of the network; a silent one drops packets, so requests time out."""

    UP = "up"
    DOWN = "down"
    SILENT = "silent"


class WriteFault(StrEnum):
    """The fault of one write to a Pod: `lost` is applied without a response, `unwatched` is applied without a watch event."""

    REFUSED = "refused"
    LOST = "lost"
    CONFLICT = "409"
    THROTTLED = "429"
    BROKEN = "500"
    UNWATCHED = "unwatched"


_CODES = {WriteFault.CONFLICT: 409, WriteFault.THROTTLED: 429, WriteFault.BROKEN: 500}


@dataclass(slots=True)
class Network:
    """One network for all agents of the Mac."""

    state: LinkState = LinkState.UP
    lag: float = 0.0
    # The faults of the next writes, and how many of the next watches get 410 Gone.
    write_faults: deque[WriteFault] = field(default_factory=deque)
    expired: int = 0
    # The resourceVersions that no watch delivers.
    unwatched: set[str] = field(default_factory=set)
    # Streams of an earlier generation are lost, which they notice at the next chunk.
    generation: int = 0

    def drop(self) -> None:
        """Lose all open connections."""
        self.generation += 1

    def restore(self) -> None:
        """Remove all faults."""
        self.state, self.lag, self.expired = LinkState.UP, 0.0, 0
        self.write_faults.clear()
        self.drop()

    async def transmit(self, request: Request) -> None:
        """Wait for the lag; raise if the network is down or silent."""
        if self.state is LinkState.DOWN:
            raise errors.ApiUnavailable("connection refused")
        if self.state is LinkState.SILENT:
            await asyncio.sleep(request.deadline.total_seconds())
            raise errors.TimedOut("no answer")
        if self.lag:
            await asyncio.sleep(self.lag)


@dataclass(frozen=True, slots=True)
class FaultyTransport:
    """A transport over the network."""

    network: Network
    inner: Transport

    async def send(self, request: Request) -> Response:
        """Send the request, or inject the next write fault."""
        await self.network.transmit(request)
        if request.method in _READS or _PODS not in request.path or not self.network.write_faults:
            return await self.inner.send(request)
        return await self._inject(self.network.write_faults.popleft(), request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Stream until the connection is lost."""
        await self.network.transmit(request)
        if self.network.expired and "watch" in request.query:
            self.network.expired -= 1
            yield Stream(410, {}, _once(_status(410)))
            return
        async with self.inner.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._while_up(stream))

    async def close(self) -> None:
        """Close it."""
        await self.inner.close()

    async def _inject(self, fault: WriteFault, request: Request) -> Response:
        if fault is WriteFault.REFUSED:
            raise errors.ApiUnavailable("connection refused")
        if fault is WriteFault.LOST:
            await self.inner.send(request)
            raise errors.ApiUnavailable("connection lost")
        if fault is WriteFault.UNWATCHED:
            answer = await self.inner.send(request)
            self.network.unwatched.add(_version(answer.body))
            return answer
        code = _CODES[fault]
        return Response(code, {"retry-after": "1"} if code == 429 else {}, _status(code))

    async def _while_up(self, stream: Stream) -> AsyncIterator[bytes]:
        generation = self.network.generation
        async for chunk in stream.chunks:
            if generation != self.network.generation or self.network.state is not LinkState.UP:
                raise errors.ApiUnavailable("connection lost")
            yield self._watched(chunk) if self.network.unwatched else chunk

    def _watched(self, chunk: bytes) -> bytes:
        lines = chunk.splitlines(keepends=True)
        return b"".join(line for line in lines if not self._is_unwatched(line))

    def _is_unwatched(self, line: bytes) -> bool:
        try:
            event = json.loads(line)
        except ValueError:
            return False
        return (
            event["type"] == "MODIFIED" and _version_of(event["object"]) in self.network.unwatched
        )


def _version(body: bytes) -> str:
    return _version_of(json.loads(body))


def _version_of(wire: dict[str, Any]) -> str:
    return str(wire.get("metadata", {}).get("resourceVersion", ""))


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _status(code: int) -> bytes:
    reasons = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
    failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return json.dumps(
        {**failure, "reason": reasons[code], "message": "injected by the test"}
    ).encode()
