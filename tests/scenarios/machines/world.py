"""Machines, managers and rented Macs under virtual time, and what must hold for them in every state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bramley.api import core
from bramley.api.meta import ObjectMeta
from bramley.api.names import machines, secrets
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec as Spec
from bramley.kube.client import Client
from bramley.sim.scaleway.records import Server
from bramley.sim.scaleway.scaleway import Settings, SimulatedScaleway
from tests import provider_peer, virtual_time
from tests.scenarios import world as clusters
from tests.scenarios.machines.gates import Gate, GatedTransport
from tests.scenarios.machines.managers import NAMESPACE, RunningManager

CLOUD = Settings(
    requests_per_minute=0,
    list_shows_old_name=timedelta(seconds=3),
    get_shows_old_name=timedelta(seconds=1),
)


@dataclass(slots=True)
class World:
    """The world; `users` are the machines that were bound to each installation of a server."""

    cluster: clusters.World
    scaleway: SimulatedScaleway
    group: asyncio.TaskGroup
    seed: int = 0
    stale: float = 0.2
    users: dict[tuple[str, str], str] = field(default_factory=dict)
    managers: list[tuple[RunningManager, asyncio.Task[None]]] = field(default_factory=list)

    @property
    def kube(self) -> Client:
        return self.cluster.kube

    def start(
        self,
        name: str,
        *,
        stop_at: int | None = None,
        late: float | None = None,
        latency: float = 0.0,
        leads_always: bool = False,
    ) -> RunningManager:
        """Start a manager."""
        rng = random.Random(f"{name}/{self.seed}")
        gate = Gate(self.observe, stop_at, late=late, latency=latency, rng=rng)
        transport = GatedTransport(self.cluster.api.transport(self.cluster.token), gate)
        client = Client(transport, clock=virtual_time.clock())
        manager = RunningManager(
            client,
            self.scaleway,
            gate,
            name=name,
            seed=self.seed,
            stale=self.stale,
            leads_always=leads_always,
        )
        self.managers.append((manager, self.group.create_task(manager.run())))
        return manager

    async def stop(self, manager: RunningManager) -> None:
        """End a manager where it is."""
        [task] = [task for each, task in self.managers if each is manager]
        task.cancel()
        await asyncio.wait([task])

    async def create(self, name: str, **fields: Any) -> Machine:
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        return await self.kube.create(Machine(metadata=metadata, spec=Spec(**fields)))

    async def delete(self, name: str) -> None:
        await self.kube.delete(Machine, name, namespace=NAMESPACE)

    async def machines(self) -> dict[str, Machine]:
        found = (await self.kube.list(Machine, namespace=NAMESPACE)).items
        return {machine.name: machine for machine in found}

    async def secrets(self) -> dict[str, dict[str, bytes]]:
        found = (await self.kube.list(core.Secret, namespace=NAMESPACE)).items
        suffix = secrets.BOOTSTRAP_SUFFIX
        return {
            each.name.removesuffix(suffix): each.data
            for each in found
            if each.name.endswith(suffix)
        }

    async def leases(self) -> dict[str, str]:
        """Return the name of the machine with the Lease of each host."""
        found = await self.managers[-1][0].leases.all()
        return {lease.ref.id: lease.holder.name for lease in found}

    def names(self) -> list[str]:
        return sorted(server.name for server in self.scaleway.servers.values())

    def server(self, machine: Machine) -> Server:
        return self.scaleway.servers[machine.status.server_id]

    async def until(self, *names: str, limit: float = 6 * 3600) -> dict[str, Machine]:
        """Wait until exactly these machines exist, and each has its host and credentials."""
        async with asyncio.timeout(limit):
            while True:
                self._raise_failures()
                found, stored = await self.machines(), await self.secrets()
                if set(found) == set(names) == set(stored) and all(map(_is_bound, found.values())):
                    return found
                await asyncio.sleep(5)

    def _raise_failures(self) -> None:
        for _, task in self.managers:
            if task.done() and not task.cancelled():
                task.result()

    async def observe(self) -> None:
        """Check what must hold at every moment."""
        found = list((await self.machines()).values())
        recorded = [each.status.server_id for each in found if each.status.server_id]
        assert len(recorded) == len(set(recorded)), f"one host, two machines: {recorded}"
        bound = [each.spec.provider_id for each in found if each.spec.provider_id]
        assert len(bound) == len(set(bound)), f"one host, two machines: {bound}"
        for machine in filter(_is_bound, found):
            server = self.scaleway.servers.get(machine.status.server_id)
            if server is not None:
                user = self.users.setdefault((server.id, server.password), machine.uid)
                assert user == machine.uid, f"{server.id} was not wiped before {machine.name}"

    async def check_at_rest(self) -> None:
        """Check that no host is lost, and that nothing is left of machines that are gone."""
        await self.observe()
        found = await self.machines()
        ids = {each.status.server_id: name for name, each in found.items()}
        assert await self.leases() == ids
        for server in self.scaleway.servers.values():
            free = (machines.POOL_PREFIX, machines.CLAIM_PREFIX)
            if server.id in ids:
                assert server.name == ids[server.id]
            else:
                assert server.name.startswith(free), f"{server.name} is lost"
                used = (server.id, server.password) in self.users
                assert not used or server.status == "reinstalling", f"{server.id} was not wiped"
        stored = await self.secrets()
        assert set(stored) == set(found)
        for name, machine in found.items():
            password = self.server(machine).password.encode()
            assert stored[name][secrets.SUDO_PASSWORD] == password


def _is_bound(machine: Machine) -> bool:
    return bool(machine.spec.provider_id and machine.status.server_id and not machine.deleting)


@asynccontextmanager
async def a_world(
    *, servers: int = 2, seed: int = 0, stale: float = 0.2, cloud: Settings = CLOUD
) -> AsyncIterator[World]:
    """Run a cluster without managers, and a pool of servers."""
    async with clusters.a_world(seed) as cluster:
        scaleway = SimulatedScaleway(
            provider_peer.NoMacs(), clock=virtual_time.clock(), settings=cloud
        )
        async with scaleway.running(), asyncio.TaskGroup() as group:
            names = [f"{machines.POOL_PREFIX}{number}" for number in range(servers)]
            await scaleway.add_servers(names)
            world = World(cluster, scaleway, group, seed, stale)
            yield world
            for _, task in world.managers:
                task.cancel()
