"""One life of the agent on a simulated Mac: the seams it works through, and its death.

Death is `kill -9`: the programs it had started go on as orphans, and die of a broken pipe when they next print; supervisors and
VMs do not notice. `die` may be called from anywhere, also from `on_moment`, and takes effect there; `bury` then takes the
agent's tasks away and undoes what they wrote on their way out, which a killed process would not have written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bramley.kube.transport import Request, Response, Stream, Transport
from bramley.sim.mac.host import SimulatedHost
from bramley.sim.mac.programs import SimulatedPrograms
from bramley.sim.mac.runs import SimulatedRuns
from bramley.sim.mac.snapshot import Snapshot

if TYPE_CHECKING:
    from bramley.sim.mac.mac import SimulatedMac

_READS = ("GET", "HEAD")


class AgentSide:
    """What one agent process is given; `on_moment` hears of every point at which a death would be a different one."""

    def __init__(self, mac: SimulatedMac, pid: int) -> None:
        self.mac = mac
        self.pid = pid
        self.lives = True
        self.on_moment: Callable[[str], None] | None = None
        self.programs = SimulatedPrograms(self)
        self.runs = SimulatedRuns(self)
        self.host = SimulatedHost(mac)
        self._at_death: Snapshot | None = None

    def die(self) -> None:
        """End the agent's process here and now."""
        if self.lives:
            self.lives = False
            self._at_death = Snapshot(self.mac.folders.state, self.mac.folders.user_data)

    async def bury(self, agent: asyncio.Task[object]) -> None:
        """Take a dead agent's task away and leave the disk as it was at its death."""
        self.die()
        agent.cancel()
        await asyncio.wait((agent,))
        if self._at_death is not None:
            self._at_death.restore()

    async def reach(self, moment: str) -> None:
        """Pass a point of the agent's life; a dead agent never gets beyond it."""
        if not self.lives:
            # Its task is on its way out already.
            raise asyncio.CancelledError
        self.pass_by(moment)
        await self.outlive()

    def pass_by(self, moment: str) -> None:
        """Pass a point at which the agent does not wait; if it dies here, what it still does on disk is undone."""
        if self.lives and self.on_moment is not None:
            self.on_moment(moment)

    async def outlive(self) -> None:
        """Go on if the agent lives, else never: whoever buries it cancels the wait."""
        if not self.lives:
            await asyncio.get_running_loop().create_future()

    def transport(self, inner: Transport) -> Transport:
        """Return a way to the API that ends with the agent, and makes each write a moment."""
        return _MortalTransport(self, inner)


class _MortalTransport:
    def __init__(self, side: AgentSide, inner: Transport) -> None:
        self._side = side
        self._inner = inner

    async def send(self, request: Request) -> Response:
        if request.method in _READS:
            answer = await self._inner.send(request)
            await self._side.outlive()
            return answer
        told = f"{request.method} {request.path}"
        await self._side.reach(f"before {told}")
        answer = await self._inner.send(request)
        await self._side.reach(f"after {told}")
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            await self._side.outlive()
            yield Stream(stream.status, stream.headers, self._while_alive(stream))

    async def close(self) -> None:
        await self._inner.close()

    async def _while_alive(self, stream: Stream) -> AsyncIterator[bytes]:
        async for chunk in stream.chunks:
            await self._side.outlive()
            yield chunk
