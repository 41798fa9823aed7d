"""Managers that only bind and release machines: elected, with stale caches, and stopped at one of their calls."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.api.names import finalizers, machines
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.base import errors
from bramley.kube.client import Client
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
from tests.scenarios.machines.gates import LEADER, Gate, GatedRunner

NAMESPACE = "default"
_LONGEST_SLEEP = 20.0


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
        if machine.deleting:
            self.binding.forget(machine.uid)
            outcome = await self.releases.release(machine)
            if outcome.is_done:
                await self.kube.remove_finalizer(outcome.machine, finalizers.MACHINE)
        else:
            machine = await self.kube.add_finalizer(machine, finalizers.MACHINE)
            outcome = await self.binding.bind(machine)
        self.outcomes[machine.name] = outcome
        self.events += [each.reason for each in outcome.events]
        return (outcome.requeue_after or timedelta(seconds=5)).total_seconds()
