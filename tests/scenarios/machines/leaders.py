"""Two managers of a fleet world with all controllers, of which the first one leads until it is killed or suspended at a call."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.base import errors
from bramley.github.client import GitHubClient
from bramley.kube.client import Client
from bramley.kube.in_process import InProcessTransport
from bramley.machines.runner_registration import GitHubAppResolver
from bramley.runtime.manager import Manager
from bramley.sim.github.application import application
from tests import virtual_time
from tests.scenarios.machines.fleet_world import FleetWorld
from tests.scenarios.machines.gates import (
    Gate,
    GatedClock,
    GatedConnect,
    GatedRunner,
    GatedTransport,
)
from tests.scenarios.machines.provider import Provider

# Fewer renewals than by default make lives cheap; the lease lasts as long.
_ELECTION_RETRY = timedelta(seconds=5)
# For how long a manager is suspended, in seconds: its successor begins, works, or has finished.
SUSPENSIONS = (22, 75, 900)


@dataclass(frozen=True, slots=True)
class Stop:
    """The checkpoint at which the first manager is killed, or suspended for some seconds."""

    at: int
    seconds: float | None = None
    # After how many seconds the provider processes the request at which a manager is killed.
    late: float | None = None


def suspended(at: int) -> Stop:
    """Return a suspension at a checkpoint, of one of the durations."""
    return Stop(at, SUSPENSIONS[at % len(SUSPENSIONS)])


@dataclass(slots=True, eq=False)
class Candidate:
    """One manager process."""

    gate: Gate
    connect: GatedConnect
    manager: Manager
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until another manager leads."""
        with contextlib.suppress(errors.LeaseLost):
            await self.manager.run()

    async def kill(self) -> None:
        """End all tasks of the process where they are."""
        self.gate.kill()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})


@dataclass(slots=True, eq=False)
class Leaders:
    """The managers; keywords are those of `Provider`."""

    world: FleetWorld
    stop: Stop | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    # The most Macs that managers may be connected to at once.
    max_connected: int | None = None
    candidates: list[Candidate] = field(default_factory=list)
    problems: list[AssertionError] = field(default_factory=list)

    @property
    def checkpoints(self) -> list[str]:
        """Return the calls at which the first manager can be stopped, up to its stop."""
        return self.candidates[0].gate.checkpoints

    async def start(self) -> None:
        """Start both managers; the first one leads."""
        first = self._start("first", self.stop)
        await first.manager.leading.wait()
        self._start("second", None)
        self.world.start(self._stop_first())

    async def settle(self, seconds: float) -> None:
        """Wait for this time, and first until the first manager has been resumed."""
        first = self.candidates[0].gate
        if self.stop is not None:
            await first.resumed.wait()
        await asyncio.sleep(seconds)

    def check(self) -> None:
        """Raise what was observed between the calls, and a failure of a manager."""
        if self.problems:
            raise self.problems[0]
        for each in self.candidates:
            if each.task is not None and each.task.done() and not each.task.cancelled():
                each.task.result()

    async def _stop_first(self) -> None:
        first, stop = self.candidates[0], self.stop
        await first.gate.stopped.wait()
        if stop is None or stop.seconds is None:
            await first.kill()
            return
        await asyncio.sleep(stop.seconds)
        first.gate.resume()

    def _start(self, name: str, stop: Stop | None) -> Candidate:
        gate = Gate(self._observe, stop.at if stop else None, late=stop.late if stop else None)
        clock = GatedClock(virtual_time.clock(), gate)
        transport = GatedTransport(self.world.api.transport(self.world.token), gate)
        client = Client(transport, clock=clock)
        connect = GatedConnect(self.world.connect, gate)
        provider = Provider(
            world=self.world,
            identity=name,
            election_retry=_ELECTION_RETRY,
            client=client,
            runner=GatedRunner(gate),
            connect=connect,
            clock=clock,
            **self._forge(client, gate, clock),
            **self.settings,
        )
        candidate = Candidate(gate, connect, provider.manager())
        candidate.task = self.world.start(candidate.run())
        self.candidates.append(candidate)
        return candidate

    def _forge(self, client: Client, gate: Gate, clock: GatedClock) -> dict[str, Any]:
        if self.world.builders is None:
            return {}
        transport = InProcessTransport(application(self.world.builders.github))
        github = GitHubClient(
            GatedTransport(transport, gate),
            clock=clock,
            registry=CollectorRegistry(),
            rng=random.Random(self.world.seed),
        )
        return {"forge": GitHubAppResolver(client, github, clock=clock)}

    async def _observe(self) -> None:
        # The workers of a manager would log what is raised here, and continue.
        try:
            await self.world.invariants.check()
            self._check_connections()
        except AssertionError as error:
            self.problems.append(error)

    def _check_connections(self) -> None:
        connected = {name for each in self.candidates for name in each.connect.connected}
        is_allowed = self.max_connected is None or len(connected) <= self.max_connected
        assert is_allowed, f"changed at once: {sorted(connected)}"
