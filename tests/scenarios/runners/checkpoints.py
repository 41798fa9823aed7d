"""A controller's connection to the API with a checkpoint before and after each write, at which the controller can be killed.

A dead connection neither sends nor receives: the request at which the controller died never returns, and every later one fails.
Watches can be delayed: events arrive late and in order, as through a slow network.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bramley.base import errors
from bramley.kube.transport import Request, Response, Stream, Transport

_READS = ("GET", "HEAD")
# Not part of what a controller decides; events may be lost.
_IGNORED = ("/leases", "/events")
_STATUS = (
    b'{"kind":"Status","status":"Failure","reason":"Forbidden","message":"not now","code":403}'
)
_FORBIDDEN = Response(403, {"content-type": "application/json"}, _STATUS)


@dataclass(slots=True)
class Checkpoints:
    """Counts the writes of all controllers; `observe` is called after each, and `kill_at` is the checkpoint of a death."""

    observe: Callable[[str], None]
    count: int = 0
    kill_at: int | None = None
    # The method and the end of the path of writes that the server refuses.
    refused: tuple[str, str] | None = None
    writes: list[str] = field(default_factory=list)
    killed: asyncio.Event = field(default_factory=asyncio.Event)

    def reach(self) -> bool:
        """Count a checkpoint; return whether the controller dies there."""
        self.count += 1
        if self.kill_at != self.count:
            return False
        self.killed.set()
        return True

    def is_refused(self, request: Request) -> bool:
        """Return whether the server refuses a write."""
        if self.refused is None:
            return False
        method, path = self.refused
        return request.method == method and request.path.endswith(path)


@dataclass(slots=True, eq=False)
class CheckpointTransport:
    """Sends the requests of one controller; its watches are delayed by up to `delay` seconds."""

    inner: Transport
    checkpoints: Checkpoints
    delay: float
    rng: random.Random
    is_dead: bool = False

    async def send(self, request: Request) -> Response:
        """Send one request; a write passes two checkpoints."""
        self._check()
        if request.method in _READS or any(each in request.path for each in _IGNORED):
            return await self.inner.send(request)
        await self._pass()
        if self.checkpoints.is_refused(request):
            return _FORBIDDEN
        response = await self.inner.send(request)
        label = f"{request.method} {request.path} {response.status}"
        self.checkpoints.writes.append(label)
        self.checkpoints.observe(label)
        await self._pass()
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open a stream, delayed."""
        self._check()
        async with self.inner.stream(request) as stream:
            if not self.delay:
                yield stream
                return
            queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
            async with asyncio.TaskGroup() as group:
                pump = group.create_task(self._pump(stream, queue))
                yield Stream(stream.status, stream.headers, _delayed(queue))
                pump.cancel()

    async def close(self) -> None:
        """Close the connection."""
        await self.inner.close()

    async def _pump(self, stream: Stream, queue: asyncio.Queue[tuple[float, bytes] | None]) -> None:
        loop = asyncio.get_running_loop()
        async for chunk in stream.chunks:
            queue.put_nowait((loop.time() + self.rng.random() * self.delay, chunk))
        queue.put_nowait(None)

    def _check(self) -> None:
        if self.is_dead:
            raise errors.ApiUnavailable("the connection is dead")

    async def _pass(self) -> None:
        self.is_dead = self.is_dead or self.checkpoints.reach()
        if self.is_dead:
            # A dead process neither continues nor fails; its task is cancelled.
            await asyncio.get_running_loop().create_future()


async def _delayed(queue: asyncio.Queue[tuple[float, bytes] | None]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while (entry := await queue.get()) is not None:
        await asyncio.sleep(max(0.0, entry[0] - loop.time()))
        yield entry[1]
