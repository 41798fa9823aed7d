"""Managers that bind and release machines: elected, with stale caches, and killed or paused before or after one of their calls.

A call is a request to the provider or a write to the API. A killed manager sends nothing any more; a paused one continues later,
in the middle of that call.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from bramley.api.names import finalizers, machines
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response
from bramley.machines.binding import Binding
from bramley.machines.bootstrap_secrets import BootstrapSecrets
from bramley.machines.host_leases import HostLeases
from bramley.machines.outcomes import HostOutcome
from bramley.machines.release import Releases, fenced_account
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.scaleway_calls import Transport
from bramley.providers.zone_lists import ZoneLists
from bramley.runtime.leader_election import LeaderElectionSettings, LeaderElector, Leadership
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.writes import FencedKube, ReadYourWrites
from bramley.sim.scaleway.scaleway import SimulatedScaleway
from tests import provider_peer, virtual_time

T = TypeVar("T")
NAMESPACE = "default"
LEADER = "machines"
# Set by a test: release the host, then bind another one.
SWAP = "tests/swap"
_LONGEST_SLEEP = 20.0
_STATUS = (
    b'{"kind":"Status","status":"Failure","reason":"Forbidden","message":"not now","code":403}'
)
FORBIDDEN = Response(403, {"content-type": "application/json"}, _STATUS)


@dataclass(slots=True)
class Gate:
    """What all calls of one manager pass; it is stopped at the call with the number `stop_at`."""

    observe: Callable[[], Awaitable[None]]
    stop_at: int | None = None
    is_stopped: bool = False
    # After how many seconds the provider processes the request at which the manager is stopped, although nobody waits for it.
    late: float | None = None
    # Of each request to the API, at most.
    latency: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    # The method and the end of the path of writes that the API refuses.
    refused: tuple[str, str] | None = None
    calls: list[str] = field(default_factory=list)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    async def reach(self, label: str, *, is_counted: bool = True) -> None:
        """Pass, or wait until the manager is resumed; one that was killed waits for ever."""
        if is_counted and not self.is_stopped:
            self.calls.append(label)
            if label.startswith("after"):
                await self.observe()
            if len(self.calls) == self.stop_at:
                self.is_stopped = True
                self.stopped.set()
        if self.is_stopped:
            await self.resumed.wait()

    def resume(self) -> None:
        self.is_stopped = False
        self.resumed.set()


@dataclass(slots=True)
class GatedTransport:
    """Requests to the API."""

    inner: Any
    gate: Gate

    async def send(self, request: Request) -> Response:
        if self.gate.latency:
            await asyncio.sleep(self.gate.rng.random() * self.gate.latency)
        is_counted = request.method != "GET" and not request.path.endswith(f"/{LEADER}")
        await self.gate.reach(f"before {request.method} {request.path}", is_counted=is_counted)
        if self.gate.refused is not None:
            method, path = self.gate.refused
            if request.method == method and request.path.endswith(path):
                return FORBIDDEN
        response: Response = await self.inner.send(request)
        await self.gate.reach(f"after {request.method} {request.path}", is_counted=is_counted)
        return response

    def stream(self, request: Request) -> Any:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


@dataclass(slots=True)
class GatedRunner:
    """Requests to the provider; one that is late is not sent, as that of a thread after its deadline."""

    gate: Gate

    async def run(
        self, scope: str, function: Callable[[], T], *, deadline: timedelta, about: str
    ) -> T:
        del scope
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + deadline.total_seconds()
        if self.gate.late is not None and len(self.gate.calls) + 1 == self.gate.stop_at:
            loop.call_later(self.gate.late, function)
        await self.gate.reach(f"before {about}")
        if loop.time() > ends_at:
            raise errors.TimedOut(f"{about}: too late")
        result = function()
        await self.gate.reach(f"after {about}")
        return result


class RunningManager:
    """One manager process."""

    def __init__(
        self,
        client: Client,
        scaleway: SimulatedScaleway,
        gate: Gate,
        *,
        name: str,
        seed: int,
        stale: float,
        leads_always: bool = False,
    ) -> None:
        self.name, self.gate, self.client = name, gate, client
        self.rng = random.Random(f"{name}/{seed}")
        self.stale = stale
        self.leads_always = leads_always
        self.leadership: Leadership | None = None
        self.outcomes: dict[str, HostOutcome] = {}
        self.events: list[str] = []
        self._seen: dict[str, Machine] = {}
        clock = virtual_time.clock()
        self.elector = LeaderElector(
            LeaderElectionSettings(NAMESPACE, LEADER, name),
            client,
            clock=clock,
            rng=self.rng,
            metrics=RuntimeMetrics(CollectorRegistry()),
        )
        kube = self.kube = FencedKube(client, writes=ReadYourWrites(), check=self.check)
        self.leases = HostLeases(
            client,
            kube,
            namespace=NAMESPACE,
            clock=clock,
            epoch=lambda: self.leadership.epoch if self.leadership else 0,
            raise_epoch=self._raise_epoch,
        )
        self.binding = self._binding(scaleway)
        self.releases = self.binding.releases

    def _binding(self, scaleway: SimulatedScaleway) -> Binding:
        clock, kube, client = virtual_time.clock(), self.kube, self.client
        known = provider_peer.account(scaleway)
        transport = Transport(GatedRunner(self.gate), provider_peer.in_place(scaleway).send)
        provider = ScalewayProvider(
            fenced_account(lambda: known, self.check), rng=self.rng, transport=transport
        )
        stored = BootstrapSecrets(client, kube, NAMESPACE)
        releases = Releases(
            provider, self.leases, stored, client, kube, clock, machines.POOL_PREFIX
        )
        zones = ZoneLists(provider, clock)
        return Binding(provider, zones, self.leases, stored, releases, kube)

    def check(self) -> None:
        if self.leads_always:
            return
        if self.leadership is None:
            raise errors.LeaseLost("not the leader")
        self.leadership.check()

    async def _raise_epoch(self, stored: int) -> None:
        assert self.leadership is not None
        await self.elector.raise_epoch(self.leadership, stored)

    async def run(self) -> None:
        """Reconcile all machines until the lease is lost."""
        if self.leads_always:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep())
                await self._drive_all(group)
        self.leadership = await self.elector.acquire()
        with contextlib.suppress(errors.LeaseLost):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.elector.renew_until_lost(self.leadership))
                    group.create_task(self._sweep())
                    await self._drive_all(group)
            except ExceptionGroup as group_error:
                lost, others = group_error.split(errors.LeaseLost)
                if others is not None or lost is None:
                    raise

    async def _drive_all(self, group: asyncio.TaskGroup) -> None:
        driven: dict[str, asyncio.Task[None]] = {}
        while True:
            for machine in (await self.client.list(Machine, namespace=NAMESPACE)).items:
                if machine.uid not in driven or driven[machine.uid].done():
                    driven[machine.uid] = group.create_task(self._drive(machine.name))
            await asyncio.sleep(2)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(60)
            with contextlib.suppress(errors.Conflict, errors.ApiUnavailable, errors.TimedOut):
                os, prefix = machines.DEFAULT_OS, machines.POOL_PREFIX
                found = await self.releases.reclaim(os=os, pool_prefix=prefix)
                self.events += [each.reason for each in found]

    async def _drive(self, name: str) -> None:
        while True:
            try:
                current = await self.client.get(Machine, name, namespace=NAMESPACE)
            except errors.NotFound:
                return
            # A cache that lags behind shows the version before.
            machine = self._seen.get(current.uid, current)
            if self.rng.random() >= self.stale:
                machine = current
            self._seen[current.uid] = current
            try:
                after = await self._reconcile(machine)
            except (errors.Conflict, errors.NotFound):
                after = 0.1
            except errors.LeaseLost:
                raise
            except errors.BramleyError as error:
                self.events.append(error.reason)
                after = 2.0
            await asyncio.sleep(min(after, _LONGEST_SLEEP))

    async def _reconcile(self, machine: Machine) -> float:
        if machine.deleting or SWAP in machine.metadata.annotations:
            self.binding.forget(machine.uid)
            outcome = await self.releases.release(machine)
            if outcome.is_done and machine.deleting:
                await self.kube.remove_finalizer(outcome.machine, finalizers.MACHINE)
            elif outcome.is_done:
                patch = {"metadata": {"annotations": {SWAP: None}}}
                await self.releases.patch(outcome.machine, patch)
        else:
            machine = await self.kube.add_finalizer(machine, finalizers.MACHINE)
            outcome = await self.binding.bind(machine)
        self.outcomes[machine.name] = outcome
        self.events += [each.reason for each in outcome.events]
        return (outcome.requeue_after or timedelta(seconds=5)).total_seconds()
