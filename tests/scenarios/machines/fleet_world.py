"""A fleet of rented Macs in process under virtual time, for the machine controller as a whole.

The embedded API runs with the controllers of a cluster and the small controllers of Cluster API; the simulated Scaleway has model Macs,
and stand-ins act for the agents and the builders' runners on them. What binds and bootstraps the machines is added by the test.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api import conditions, crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.cluster_api import Cluster, MachineDeployment
from bramley.api.core import Node, Pod
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object, ObjectMeta
from bramley.api.names import cluster_api as capi
from bramley.api.names import labels, machines
from bramley.api.pod import Container, PodSpec, Toleration
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec as Spec
from bramley.api.tuist_cluster import TuistCluster
from bramley.apiserver.apimachinery.settings import Settings as ApiSettings
from bramley.apiserver.controllers.timings import Timings
from bramley.app import embedded
from bramley.app.cluster_api import cluster_api_controllers
from bramley.base.secret import Secret
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.kube.client import Client
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.sim.macos import fresh_install
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.catalog import DEFAULT_TYPE
from bramley.sim.scaleway.macs import Installation, ModelMacs
from bramley.sim.scaleway.records import USER, Server
from bramley.sim.scaleway.scaleway import Settings, SimulatedScaleway
from bramley.sim.scaleway.tasks import Tasks
from tests import virtual_time
from tests.scenarios.machines.builders import Builders, a_github
from tests.scenarios.machines.fleet_invariants import FleetInvariants
from tests.scenarios.machines.mac_agents import AgentSettings, MacAgents
from tests.scenarios.machines.mac_connections import Login, MacConnections, MacFaults
from tests.scenarios.machines.world import CLOUD
from tests.unit.host.steps import fixtures

NAMESPACE = "default"
CLUSTER = "c"
FLEET = "fleet-a"
# How often an agent renews the Lease of its Node.
HEARTBEAT = timedelta(seconds=10)
# Below the silence after which an informer connects again.
_LONGEST_SILENCE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Small artifacts, as a manager sends them to Macs."""

    tart: Artifact
    newer_tart: Artifact
    interpreter: Artifact
    agent: Artifact
    newer_agent: Artifact
    actions_runner: Artifact

    @classmethod
    def make(cls, folder: Path) -> Artifacts:
        """Write the artifacts into a folder."""
        folder.mkdir()
        return cls(
            fixtures.tart(folder),
            fixtures.tart(folder, "2.33.0"),
            fixtures.interpreter(folder),
            fixtures.agent(folder),
            fixtures.agent(folder, fixtures.NEWER_AGENT),
            fixtures.actions_runner(folder),
        )


@dataclass(slots=True, eq=False)
class FleetWorld:
    """The world."""

    api: embedded.Api
    kube: Client
    # Of an administrator.
    token: Secret
    scaleway: SimulatedScaleway
    macs: ModelMacs
    agents: MacAgents
    invariants: FleetInvariants
    artifacts: Artifacts
    connections: MacConnections
    tasks: Tasks
    # None in a world without builders.
    builders: Builders | None = None
    seed: int = 0
    # How often `until` looks, in seconds.
    every: float = 1.0
    store: ArtifactStore = field(default_factory=ArtifactStore)

    def connect(
        self, login: Login, artifacts: ArtifactStore | None = None
    ) -> AbstractAsyncContextManager[ModelConnection]:
        """Connect to a Mac, as over SSH."""
        return self.connections.connect(login, artifacts)

    def client(self) -> Client:
        """Return another client of the API, with all permissions."""
        return Client(self.api.transport(self.token), clock=virtual_time.clock())

    def start(self, running: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something, such as a controller, until the end of the world."""
        return self.tasks.start(running)

    async def create_fleet(
        self, replicas: int, *, name: str = FLEET, node_drain_timeout: str = "", **spec: Any
    ) -> None:
        """Create a MachineDeployment with its template; keywords are fields of the machines' spec, as in manifests."""
        template = f"{name}-1"
        await self.create_template(template, **{"fleetName": name, **spec})
        identity = {labels.CAPI_CLUSTER: CLUSTER, capi.DEPLOYMENT_NAME: name, labels.FLEET: name}
        machine: dict[str, Any] = {
            "clusterName": CLUSTER,
            "bootstrap": {"dataSecretName": "noop"},
            "infrastructureRef": _reference(ScalewayAppleSiliconMachineTemplate, template),
        }
        if node_drain_timeout:
            machine["nodeDrainTimeout"] = node_drain_timeout
        body = {
            "clusterName": CLUSTER,
            "replicas": replicas,
            "strategy": {"type": "OnDelete"},
            "selector": {"matchLabels": identity},
            "template": {"metadata": {"labels": identity}, "spec": machine},
        }
        await self.create(MachineDeployment, name, spec=body)

    async def create_template(self, name: str, **spec: Any) -> None:
        """Create a template of machines."""
        body = {"template": {"spec": spec}}
        await self.create(ScalewayAppleSiliconMachineTemplate, name, spec=body)

    async def scale(self, replicas: int, *, name: str = FLEET) -> None:
        """Scale a fleet, as kubectl does."""
        await self.kube.scale(MachineDeployment, name, namespace=NAMESPACE, replicas=replicas)

    async def create_machine(self, name: str, **fields: Any) -> Machine:
        """Create a machine without Cluster API; keywords are attributes of its spec."""
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        return await self.kube.create(Machine(metadata=metadata, spec=Spec(**fields)))

    async def delete_machine(self, name: str) -> None:
        """Delete a machine."""
        await self.kube.delete(Machine, name, namespace=NAMESPACE)

    async def create(self, kind: type[Object], name: str, **body: Any) -> None:
        """Create an object of the namespace."""
        head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {labels.CAPI_CLUSTER: CLUSTER}}
        await self.kube.create_wire(
            kind.resource, {**head, "metadata": metadata, **body}, namespace=NAMESPACE
        )

    async def create_pod(
        self, name: str, image: str = "ghcr.io/example/runner:1", *, node: str = "", **more: str
    ) -> Pod:
        """Create a Pod for a Mac, by default scheduled; keywords are labels without their prefix."""
        spec = PodSpec(
            containers=[Container(name="runner", image=image)],
            node_name=node,
            node_selector={labels.OS: labels.DARWIN},
            tolerations=[Toleration(key=labels.MACOS_TAINT, operator="Exists")],
            automount_service_account_token=False,
        )
        found = {f"{labels.PREFIX}{key.replace('_', '-')}": value for key, value in more.items()}
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, labels=found)
        return await self.kube.create(Pod(metadata=metadata, spec=spec))

    async def give_job(self, pod: str, *, seconds: float | None = None) -> None:
        """Label a runner Pod as dispatch does when its runner gets a job."""
        if seconds is not None:
            self.agents.settings.jobs[pod] = seconds
        patch = {"metadata": {"labels": {labels.RUNNER_POOL_OWNER: "acme"}}}
        await self.kube.merge_patch(Pod, pod, patch, namespace=NAMESPACE)

    async def add_own_mac(self, name: str) -> Installation:
        """Switch on a Mac that is not rented, with a login by password; its address is `macs.address(name)`."""
        password = f"password of {name}"
        made = Installation(DEFAULT_TYPE, "26.3", USER, password, (), host_name=name)
        await self.macs.install(name, made)
        self.invariants.own.add(name)
        return made

    async def until_bootstrapped(self, *names: str, within: float = 6 * 3600) -> None:
        """Wait until exactly these machines exist and are ready."""

        async def are_ready() -> bool:
            found = await self.machines()
            return set(found) == set(names) and all(each.status.ready for each in found.values())

        await self.until(are_ready, within=within)

    async def machines(self) -> dict[str, Machine]:
        """Return the machines by name."""
        found = (await self.kube.list(Machine, namespace=NAMESPACE)).items
        return {machine.name: machine for machine in found}

    async def nodes(self) -> dict[str, Node]:
        """Return the Nodes by name."""
        return {node.name: node for node in (await self.kube.list(Node)).items}

    async def pods(self) -> dict[str, Pod]:
        """Return the Pods by name."""
        found = (await self.kube.list(Pod, namespace=NAMESPACE)).items
        return {pod.name: pod for pod in found}

    def hosts(self) -> dict[str, Server]:
        """Return the rented hosts by their present name."""
        return {server.name: server for server in self.scaleway.servers.values()}

    def mac(self, server: Server) -> Mac:
        """Return the Mac of a host."""
        return self.macs.mac(server.id)

    def faults(self, server: Server) -> MacFaults:
        """Return the faults of a host."""
        return self.connections.faults(server.ip)

    async def until(
        self, predicate: Callable[[], Coroutine[Any, Any, Any]], *, within: float = 6 * 3600
    ) -> Any:
        """Wait until a function returns something true, and return that."""
        async with asyncio.timeout(within):
            while not (found := await predicate()):
                await asyncio.sleep(self.every)
            return found

    async def until_ready(self, *nodes: str, within: float = 6 * 3600) -> dict[str, Node]:
        """Wait until exactly these Nodes are Ready."""

        async def are_ready() -> dict[str, Node] | None:
            found = await self.nodes()
            ready = {name for name, node in found.items() if is_ready(node)}
            return found if ready == set(nodes) else None

        found: dict[str, Node] = await self.until(are_ready, within=within)
        return found


def is_ready(obj: Node | Pod) -> bool:
    """Return whether a Node or a Pod is Ready."""
    return conditions.is_true(obj.status.conditions, "Ready")


@asynccontextmanager
async def a_fleet_world(
    *,
    servers: int = 2,
    seed: int = 0,
    cloud: Settings = CLOUD,
    agents: AgentSettings | None = None,
    heartbeat: timedelta = HEARTBEAT,
    builders: bool = False,
) -> AsyncIterator[FleetWorld]:
    """Run a world with a pool of this many hosts, and check what must always hold every minute.

    With builders, the images of macOS include Xcode and Homebrew, and there is a simulated GitHub. A long heartbeat makes days cheap;
    the time after which a Node counts as lost grows with it.
    """
    clock = virtual_time.clock()
    async with _plain_errors(), AsyncExitStack() as stack:
        api, token = await stack.enter_async_context(_running_api(seed, heartbeat))
        kube = await stack.enter_async_context(Client(api.transport(token), clock=clock))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runners = Builders(a_github(clock)) if builders else None
        macs = _model_macs(folder / "macs", runners)
        acting = MacAgents(macs, api.transport, clock=clock, seed=seed, settings=agents)
        acting.settings.set_heartbeat(heartbeat)
        scaleway = SimulatedScaleway(macs, clock=clock, settings=cloud)
        tasks = Tasks()
        for part in (scaleway, tasks):
            await stack.enter_async_context(part.running())
        invariants = FleetInvariants(kube, scaleway, macs, acting, runners)
        world = FleetWorld(
            api, kube, token, scaleway, macs, acting, invariants,
            artifacts=Artifacts.make(folder / "artifacts"),
            connections=MacConnections(macs, clock=clock),
            tasks=tasks,
            builders=runners,
            seed=seed,
        )  # fmt: skip
        await _prepare(world, servers)
        yield world
        await invariants.check()


@asynccontextmanager
async def _plain_errors() -> AsyncIterator[None]:
    """Raise a single error as it is, and not in the groups of all tasks around it."""
    try:
        yield
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


def _running_api(
    seed: int, heartbeat: timedelta
) -> AbstractAsyncContextManager[tuple[embedded.Api, Secret]]:
    factor, timings, api = heartbeat / HEARTBEAT, Timings(), ApiSettings(cluster_admission=True)
    timings = replace(
        timings,
        node_monitor_period=timings.node_monitor_period * factor,
        node_monitor_grace=timings.node_monitor_grace * factor,
    )
    # Also how often the permission of an open watch is checked again.
    api = replace(
        api,
        send_deadline=api.send_deadline * factor,
        bookmark_every=min(api.bookmark_every * factor, _LONGEST_SILENCE),
    )
    return embedded.running(
        clock=virtual_time.clock(), seed=seed, settings=api, controllers=True, timings=timings
    )


def _model_macs(folder: Path, builders: Builders | None) -> ModelMacs:
    has_tools = builders is not None
    return ModelMacs(
        folder,
        clock=virtual_time.clock(),
        template=fresh_install.Settings(xcode=has_tools, homebrew=has_tools),
        forge=builders.forge if builders else None,
    )


async def _prepare(world: FleetWorld, servers: int) -> None:
    for manifest in crds.manifests():
        await world.kube.create_wire(CustomResourceDefinition.resource, manifest)
    await world.scaleway.add_servers(f"{machines.POOL_PREFIX}{each}" for each in range(servers))
    manager = await _controllers(world)
    world.start(manager.run())
    world.start(world.agents.run())
    world.start(world.invariants.run())
    if world.builders is not None:
        world.start(world.builders.run(world.macs))
        await world.kube.create(world.builders.app_secret(NAMESPACE))
    await world.create(TuistCluster, CLUSTER)
    reference = _reference(TuistCluster, CLUSTER)
    await world.create(Cluster, CLUSTER, spec={"infrastructureRef": reference})

    async def is_provisioned() -> bool:
        found = await world.kube.get(Cluster, CLUSTER, namespace=NAMESPACE)
        return found.status.phase == "Provisioned"

    await world.until(is_provisioned, within=60)


async def _controllers(world: FleetWorld) -> Manager:
    return await cluster_api_controllers(
        world.client(),
        clock=virtual_time.clock(),
        rng=random.Random(world.seed),
        registry=CollectorRegistry(),
        settings=ManagerSettings(tune_gc=False),
    )


def _reference(kind: type[Object], name: str) -> dict[str, str]:
    head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    return {**head, "name": name, "namespace": NAMESPACE}
