"""What all calls of one manager pass, so that it can be killed or suspended before or after any of them.

A call is a request to the provider or to a forge, a write to the API, or a login or a batch of commands on a Mac. A killed manager
sends nothing any more. A suspended one continues later, in the middle of that call; until then its clock stands still.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import Command, Probe
from bramley.host.connection import Batch, BatchResult, Connection, OnStarted
from bramley.host.facts import Facts
from bramley.kube.transport import Request, Response
from tests.scenarios.machines.mac_connections import Login

T = TypeVar("T")
LEADER = "machines"
# What the calls of the provider that change something are about.
CHANGES = ("rename of ", "reinstallation of ", "reboot of ", "registration of ", "removal of ")
_STATUS = (
    b'{"kind":"Status","status":"Failure","reason":"Forbidden","message":"not now","code":403}'
)
FORBIDDEN = Response(403, {"content-type": "application/json"}, _STATUS)


@dataclass(slots=True)
class Gate:
    """What all calls of one manager pass; it is stopped at the checkpoint with the number `stop_at`."""

    observe: Callable[[], Awaitable[None]]
    stop_at: int | None = None
    is_stopped: bool = False
    is_killed: bool = False
    # When it was stopped, in seconds of the loop.
    stopped_at: float = 0.0
    # After how many seconds the provider processes the request at which the manager is stopped, although nobody waits for it.
    late: float | None = None
    # Of each request to the API, and of each request and response of the provider, at most, in seconds.
    latency: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    # The method and the end of the path of writes that the API refuses.
    refused: tuple[str, str] | None = None
    calls: list[str] = field(default_factory=list)
    # Those at which it can be stopped: of reads that follow each other, only the first one, because nothing has changed since then.
    checkpoints: list[str] = field(default_factory=list)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    _was_read: bool = False

    async def reach(self, label: str, *, is_counted: bool = True, is_read: bool = False) -> None:
        """Pass, or wait until the manager is resumed; one that was killed waits until its task is cancelled."""
        self._end_if_killed()
        if is_counted and not self.is_stopped:
            if not (is_read and self._was_read):
                self.checkpoints.append(label)
                if len(self.checkpoints) == self.stop_at:
                    self.stop()
            self.calls.append(label)
            self._was_read = is_read
            if label.startswith("after") and not is_read:
                await self.observe()
        if self.is_stopped:
            await self.resumed.wait()
            self._end_if_killed()

    async def travel(self) -> None:
        """Wait as long as a request or a response is under way."""
        if self.latency:
            await asyncio.sleep(self.rng.random() * self.latency)

    def stop(self) -> None:
        """Hold all calls from now on."""
        self.is_stopped = True
        self.stopped_at = asyncio.get_running_loop().time()
        self.stopped.set()

    def resume(self) -> None:
        """Let the calls pass again."""
        self.is_stopped = False
        self.resumed.set()

    def kill(self) -> None:
        """Let no call pass any more, not even one of a task that cleans up when it is cancelled."""
        self.is_killed = True
        self.resume()

    def _end_if_killed(self) -> None:
        if self.is_killed:
            raise asyncio.CancelledError


@dataclass(frozen=True, slots=True)
class GatedClock:
    """The clock of a manager: it stands still while the manager is stopped, and jumps when it is resumed."""

    inner: Clock
    gate: Gate

    def now(self) -> datetime:
        """Return the time of the inner clock, or that of the stop."""
        return self.inner.now() - timedelta(seconds=self.inner.monotonic() - self.monotonic())

    def monotonic(self) -> float:
        """Return the seconds of the inner clock, or those of the stop."""
        return self.gate.stopped_at if self.gate.is_stopped else self.inner.monotonic()


@dataclass(slots=True)
class GatedTransport:
    """Requests to the API, or to a forge: all but reads, events and those for the Lease of the leader are counted."""

    inner: Any
    gate: Gate

    async def send(self, request: Request) -> Response:
        """Send one request."""
        await self.gate.travel()
        is_counted = _is_write(request)
        await self.gate.reach(f"before {request.method} {request.path}", is_counted=is_counted)
        if self.gate.refused is not None:
            method, path = self.gate.refused
            if request.method == method and request.path.endswith(path):
                return FORBIDDEN
        response: Response = await self.inner.send(request)
        await self.gate.reach(f"after {request.method} {request.path}", is_counted=is_counted)
        return response

    def stream(self, request: Request) -> Any:
        """Open a stream."""
        return self.inner.stream(request)

    async def close(self) -> None:
        """Close the connection."""
        await self.inner.close()


def _is_write(request: Request) -> bool:
    is_election = request.path.endswith(f"/leases/{LEADER}") or (
        request.path.endswith("/leases") and f'"name":"{LEADER}"'.encode() in (request.body or b"")
    )
    is_event = "/events" in request.path
    return request.method != "GET" and not is_election and not is_event


@dataclass(slots=True)
class GatedRunner:
    """Requests to the provider; one that is late is not sent, as that of a thread after its deadline."""

    gate: Gate

    async def run(
        self, scope: str, function: Callable[[], T], *, deadline: timedelta, about: str
    ) -> T:
        """Call the function, which sends the request."""
        del scope
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + deadline.total_seconds()
        is_read = not about.startswith(CHANGES)
        if self.gate.late is not None and len(self.gate.checkpoints) + 1 == self.gate.stop_at:
            loop.call_later(self.gate.late, function)
        await self.gate.travel()
        await self.gate.reach(f"before {about}", is_read=is_read)
        if loop.time() > ends_at:
            raise errors.TimedOut(f"{about}: too late")
        result = function()
        await self.gate.travel()
        await self.gate.reach(f"after {about}", is_read=is_read)
        return result


@dataclass(slots=True)
class GatedConnection:
    """A connection to a Mac: its changes are counted."""

    inner: Connection
    gate: Gate

    @property
    def host(self) -> str:
        """Return the name of the Mac."""
        return self.inner.host

    async def execute(self, command: Command) -> None:
        """Execute one command."""
        await self.gate.reach(f"before {command.purpose} on {self.host}")
        await self.inner.execute(command)
        await self.gate.reach(f"after {command.purpose} on {self.host}")

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        """Execute a batch."""
        first = batch.commands[0].purpose if batch.commands else "probes"
        is_counted = bool(batch.commands)
        await self.gate.reach(f"before batch: {first} on {self.host}", is_counted=is_counted)
        result = await self.inner.execute_all(batch, on_started=on_started)
        await self.gate.reach(f"after batch: {first} on {self.host}", is_counted=is_counted)
        return result

    async def probe(self, probes: Collection[Probe]) -> Facts:
        """Execute probes, which change nothing."""
        await self.gate.reach("probe", is_counted=False)
        return await self.inner.probe(probes)


@dataclass(slots=True)
class GatedConnect:
    """Opens connections to Macs, and records which Macs a manager is connected to."""

    inner: Callable[..., AbstractAsyncContextManager[Connection]]
    gate: Gate
    connected: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def __call__(
        self, login: Login, artifacts: ArtifactStore | None = None
    ) -> AsyncIterator[GatedConnection]:
        """Log in."""
        await self.gate.reach(f"before login to {login.name}")
        async with self.inner(login, artifacts) as mac:
            self.connected.append(login.name)
            try:
                await self.gate.reach(f"after login to {login.name}")
                yield GatedConnection(mac, self.gate)
            finally:
                self.connected.remove(login.name)
