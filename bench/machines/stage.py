"""An embedded API and a manager as processes, and in this process a simulated Scaleway over HTTP, whose hosts all have their machines.

Machines and Nodes are written as they are after a bootstrap. Leases and Secrets of the hosts are made by the manager, which takes the
machines over as it does those of the existing provider. The server runs no controllers of a cluster, and no agent sends heartbeats.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from bench.apiserver.servers import Bramley, ProcessFolder, StartFailed
from bench.machines import fleet
from bench.machines.fleet import NAMESPACE, HostRecord, Releases
from bench.pools.stage import all_of
from bench.streaming.child_process import Child, started
from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import Node
from bramley.api.core import Secret as CoreSecret
from bramley.api.meta import ObjectMeta
from bramley.api.names import conditions as types
from bramley.api.names import finalizers, labels, metrics, secrets
from bramley.api.scaleway_machine import MachineAddress
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec as Spec
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineStatus as Status
from bramley.app.cluster_api import install_definitions
from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.sim_github import serving
from bramley.base.clock import SystemClock
from bramley.host.artifacts import ArtifactStore
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request
from bramley.machines import objects
from bramley.machines.host_configuration import HostDefaults
from bramley.sim.scaleway.application import application
from bramley.sim.scaleway.scaleway import Settings, SimulatedScaleway
from tests.provider_peer import NoMacs

TIMEOUT = 1200.0
_MANAGER = "bench.machines.manager_process"
_SERIES = re.compile(rf"^{metrics.API_REQUESTS.name}{{(.*)}} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_TRUE = (
    types.PROVISIONED, types.BOOTSTRAPPED, types.NODE_READY, types.PROVEN, types.UP_TO_DATE, types.READY,
)  # fmt: skip


class Addresses(NoMacs):
    """Hosts whose Macs are served by other processes, on an address each."""

    def address(self, server_id: str) -> str:
        """Return the address of a host."""
        return self._addresses.setdefault(server_id, fleet.address(len(self._addresses)))


@dataclass(slots=True)
class Stage:
    """The processes, the clients, and the hosts."""

    process_folder: ProcessFolder
    transport: HttpTransport
    kube: Client
    scaleway: SimulatedScaleway
    cloud_url: str
    releases: Releases
    hosts: list[HostRecord]
    old: HostDefaults
    new: HostDefaults

    @asynccontextmanager
    async def manager(self, *flags: object) -> AsyncIterator[Child]:
        """Run a manager until the context ends; it leads when this begins."""
        folder = self.process_folder.folder
        async with started(_MANAGER, folder, self.cloud_url, *flags) as child:
            await child.read("leads")
            yield child

    async def until_bound(self, manager: Child) -> None:
        """Wait until all hosts have their Secrets, and nothing is left to do at once."""

        async def is_bound() -> bool:
            found = (await self.kube.list(CoreSecret, namespace=NAMESPACE)).items
            names = {each.name for each in found}
            return all(secrets.machine_bootstrap(host.name) in names for host in self.hosts)

        await self.until(manager, is_bound, what="hosts that are bound")
        await asyncio.sleep(10)

    async def until(
        self, manager: Child, check: Callable[[], Awaitable[bool]], *, what: str
    ) -> None:
        """Poll until the check is true; StartFailed if the manager has exited or it takes too long."""
        deadline = time.monotonic() + TIMEOUT
        while not await check():
            if manager.process.returncode is not None or time.monotonic() > deadline:
                raise StartFailed(f"timed out waiting for {what}")
            await asyncio.sleep(1)

    async def machines(self) -> list[Machine]:
        """Return the machines of all hosts."""
        names = {host.name for host in self.hosts}
        found = (await self.kube.list(Machine, namespace=NAMESPACE)).items
        return [machine for machine in found if machine.name in names]

    async def drift_all(self) -> None:
        """Write the status that a manager with the old release has left."""
        for host in self.hosts:
            body = {"status": {"hostConfigHash": fleet.fingerprint(host, self.old)}}
            await self.kube.merge_patch(
                Machine, host.name, body, namespace=NAMESPACE, subresource="status"
            )

    async def count_updated(self) -> int:
        """Return how many hosts have the new release."""
        found = {each.name: each.status.host_config_hash for each in await self.machines()}
        return sum(found[host.name] == fleet.fingerprint(host, self.new) for host in self.hosts)

    async def requests(self) -> Counter[str]:
        """Return how many requests the server has answered, by verb and resource; the open watches are none."""
        response = await self.transport.send(Request("GET", "/metrics", accept="text/plain"))
        counts: Counter[str] = Counter()
        for found in _SERIES.finditer(response.body.decode()):
            series = dict(_LABEL.findall(found[1]))
            if series["resource"]:
                counts[f"{series['verb']} {series['resource']}"] += int(float(found[2]))
        return counts


@asynccontextmanager
async def staged(process_folder: ProcessFolder, count: int, size: int) -> AsyncIterator[Stage]:
    """Start the API and the simulated Scaleway with these hosts and their machines, and artifacts of this size."""
    Bramley(process_folder).start()
    folder, store = process_folder.folder, ArtifactStore()
    releases = Releases(folder)
    releases.write(size)
    clock = SystemClock()
    scaleway = SimulatedScaleway(Addresses(), clock=clock, settings=Settings(requests_per_minute=0))
    address = Address("127.0.0.1", 0)
    async with AsyncExitStack() as exits:
        bound = exits.enter_context(bind(address))
        await exits.enter_async_context(scaleway.running())
        await exits.enter_async_context(serving(application(scaleway), bound))
        transport = HttpTransport(config_loader.load(folder / "kubeconfig", environment={}))
        kube = await exits.enter_async_context(Client(transport))
        names = [f"mac-{number:03d}" for number in range(count)]
        servers = await scaleway.add_servers(names)
        stage = Stage(
            process_folder,
            transport,
            kube,
            scaleway,
            f"http://{bound_address(address, bound)}",
            releases,
            [HostRecord(each.name, each.id, each.ip) for each in servers],
            await releases.defaults(fleet.OLD, store),
            await releases.defaults(fleet.NEW, store),
        )
        await _create(stage)
        yield stage


async def _create(stage: Stage) -> None:
    """Create the definitions, and a machine and a Node for each host."""
    for manifest in crds.manifests():
        await stage.kube.create_wire(CustomResourceDefinition.resource, manifest)
    await install_definitions(stage.kube)
    fleet.write_hosts(stage.process_folder.folder, stage.hosts)

    async def create(host: HostRecord) -> None:
        await stage.kube.create_wire(Node.resource, _node(host))
        spec = Spec(provider_id=host.mac.provider_id, fleet_name=fleet.FLEET)
        metadata = ObjectMeta(name=host.name, namespace=NAMESPACE, finalizers=[finalizers.MACHINE])
        await stage.kube.create(Machine(metadata=metadata, spec=spec))
        body = {"status": objects.status_wire(_status(host, stage.new))}
        await stage.kube.merge_patch(
            Machine, host.name, body, namespace=NAMESPACE, subresource="status"
        )

    await all_of(create(host) for host in stage.hosts)


def _node(host: HostRecord) -> dict[str, Any]:
    marks = {labels.FLEET: fleet.FLEET, labels.OS: labels.DARWIN}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": host.name, "labels": marks},
        "spec": {"providerID": host.mac.provider_id},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def _status(host: HostRecord, defaults: HostDefaults) -> Status:
    status = Status(
        ready=True,
        phase="Ready",
        host_config_hash=fleet.fingerprint(host, defaults),
        tart_kubelet_binary_sha=defaults.artifacts.agent.sha256,
        server_id=host.id,
        addresses=[MachineAddress(type="ExternalIP", address=host.address)],
    )
    found = status.conditions
    for type in _TRUE:
        found = objects.put_condition(found, type, now=datetime.now(UTC))
    return replace(status, conditions=found)


def waiting_machine(name: str) -> Machine:
    """Return a machine that waits for a host, because there is none for it."""
    spec = Spec(fleet_name=fleet.FLEET, adopt_pool_prefix="no-such-pool-")
    return Machine(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec)
