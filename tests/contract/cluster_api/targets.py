"""The implementations under test, and a Cluster of one test with its objects written in full."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.cluster_api import Cluster, Machine, MachineDeployment
from bramley.api.core import Namespace, Node, Pod, Secret
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object, ObjectMeta, Resource, to_wire
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.api.tuist_cluster import TuistCluster
from bramley.app import embedded
from bramley.app.cluster_api import cluster_api_controllers
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.machines import tuist_clusters
from bramley.runtime.manager import Manager, ManagerSettings
from tests.contract.cluster_api.infrastructure import Provider
from tests.contract.cluster_behaviour.targets import eventually
from tools.kube import core_manager

FLEET = {labels.FLEET: "fleet-a"}
DRAIN_RULES = Resource(
    names.GROUP, names.VERSION, "MachineDrainRule", "machinedrainrules", namespaced=True
)


# Without a control plane that is managed elsewhere the core manager neither drains nor deletes a Node.
CONTROL_PLANES = Resource(
    "controlplane.cluster.x-k8s.io",
    "v1alpha1",
    "StubControlPlane",
    "stubcontrolplanes",
    namespaced=True,
)


def control_plane_definition() -> dict[str, Any]:
    """Return the definition of a control plane with any fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": CONTROL_PLANES.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    names_of_kind = {"plural": CONTROL_PLANES.plural, "kind": CONTROL_PLANES.kind}
    name = f"{CONTROL_PLANES.plural}.{CONTROL_PLANES.group}"
    return {
        "apiVersion": CustomResourceDefinition.resource.api_version,
        "kind": CustomResourceDefinition.resource.kind,
        "metadata": {"name": name, "labels": {labels.CAPI_CONTRACT: CONTROL_PLANES.version}},
        "spec": {
            "group": CONTROL_PLANES.group,
            "scope": "Namespaced",
            "names": names_of_kind,
            "versions": [version],
        },
    }


@asynccontextmanager
async def small_controllers() -> AsyncIterator[Client]:
    """Run our cluster in memory with the small controllers."""
    clock = SystemClock()
    async with (
        embedded.running(clock=clock, controllers=True) as (api, token),
        Client(api.transport(token)) as client,
    ):
        await install(client, crds.manifests())
        manager = await cluster_api_controllers(
            client,
            clock=clock,
            rng=random.Random(0),
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False),
        )
        async with running(manager):
            yield client


@asynccontextmanager
async def behind(kubeconfig: Path) -> AsyncIterator[Client]:
    """Use a server with the core manager; the reconciler of TuistClusters is the provider's, so it runs here."""
    clock = SystemClock()
    config = config_loader.load(kubeconfig, environment={})
    async with Client(HttpTransport(config)) as client:
        manager = Manager(
            client,
            clock=clock,
            rng=random.Random(0),
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False),
        )
        tuist_clusters.add(manager, clock=clock)
        async with running(manager):
            yield client


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[None]:
    """Run a manager while the context lasts."""
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        try:
            await manager.leading.wait()
            yield
        finally:
            manager.stop()


async def install(kube: Client, manifests: list[dict[str, Any]]) -> None:
    """Install definitions, and wait until their kinds are served."""
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        await kube.apply(
            CustomResourceDefinition, name, manifest, manager="cluster-api-suite", force=True
        )
    for manifest in manifests:
        spec = manifest["spec"]
        version = next(each["name"] for each in spec["versions"] if each["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        await eventually(partial(is_served, kube, path))


async def is_served(kube: Client, path: str) -> bool:
    """Return whether a collection can be listed."""
    try:
        await kube.read_wire(path)
    except errors.NotFound:
        return False
    return True


@contextmanager
def with_core_manager(kubeconfig: Path) -> Iterator[Path]:
    """Install all definitions on a server, and run the core manager on it."""
    files = [yaml.safe_load(path.read_text()) for path in core_manager.definitions()]

    async def prepare() -> None:
        config = config_loader.load(kubeconfig, environment={})
        async with Client(HttpTransport(config)) as client:
            await install(client, [*files, *crds.manifests(), control_plane_definition()])

    asyncio.run(prepare())
    with core_manager.running(kubeconfig):
        yield kubeconfig


@dataclass(frozen=True, slots=True)
class World:
    """A namespace with one Cluster, and the stub of its infrastructure."""

    kube: Client
    namespace: str
    provider: Provider

    async def create(self, kind: type[Object] | Resource, name: str, **body: Any) -> None:
        """Create an object of the namespace."""
        resource = kind if isinstance(kind, Resource) else kind.resource
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata = {"name": name, "namespace": self.namespace, **body.pop("metadata", {})}
        await self.kube.create_wire(
            resource, {**head, "metadata": metadata, **body}, namespace=self.namespace
        )

    def reference(self, kind: type[Object], name: str) -> dict[str, str]:
        """Return a reference in full."""
        resource = kind.resource
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return {**head, "name": name, "namespace": self.namespace}

    async def create_template(self, name: str, *, cpus: int) -> None:
        """Create an infrastructure template."""
        body = {"template": {"spec": {"fleetName": "fleet-a", "hostCPU": cpus}}}
        await self.create(ScalewayAppleSiliconMachineTemplate, name, spec=body)

    async def create_deployment(self, replicas: int) -> None:
        """Create the MachineDeployment of the fleet."""
        identity = {labels.CAPI_CLUSTER: "c", names.DEPLOYMENT_NAME: "fleet", **FLEET}
        machine = {
            "clusterName": "c",
            "bootstrap": {"dataSecretName": "noop"},
            "infrastructureRef": self.reference(ScalewayAppleSiliconMachineTemplate, "t1"),
        }
        spec = {
            "clusterName": "c",
            "replicas": replicas,
            "strategy": {"type": "OnDelete"},
            "selector": {"matchLabels": identity},
            "template": {"metadata": {"labels": identity}, "spec": machine},
        }
        await self.create(
            MachineDeployment, "fleet", metadata={"labels": {labels.CAPI_CLUSTER: "c"}}, spec=spec
        )

    async def scale(self, replicas: int) -> None:
        """Scale the MachineDeployment as kubectl does."""
        await self.kube.scale(
            MachineDeployment, "fleet", namespace=self.namespace, replicas=replicas
        )

    async def patch(self, kind: type[Object], name: str, body: dict[str, Any]) -> None:
        """Merge a patch into an object."""
        await self.kube.merge_patch(kind, name, body, namespace=self.namespace)

    async def machines(self) -> list[Machine]:
        """Return the Machines."""
        return (await self.kube.list(Machine, namespace=self.namespace)).items

    async def infrastructure(self) -> list[ScalewayAppleSiliconMachine]:
        """Return the infrastructure objects."""
        kind = ScalewayAppleSiliconMachine
        return (await self.kube.list(kind, namespace=self.namespace)).items

    async def nodes(self) -> set[str]:
        """Return the names of the Nodes of this namespace's fleet."""
        found = (await self.kube.list(Node)).items
        return {each.name for each in found if each.name.startswith("fleet-")}

    async def wait_for_running(self, count: int) -> list[Machine]:
        """Wait until exactly this number of Machines exists, and all run."""

        async def are_running() -> list[Machine] | None:
            machines = await self.machines()
            is_done = len(machines) == count and all(
                each.status.phase == "Running" and not each.deleting for each in machines
            )
            deployment = await self.deployment()
            counts = (deployment.status.replicas, deployment.status.ready_replicas)
            return machines if is_done and counts == (count, count) else None

        if not count:
            await eventually(self._has_no_machines)
            return []
        return await eventually(are_running) or []

    async def _has_no_machines(self) -> bool:
        return not await self.machines() and not await self.infrastructure()

    async def clean_up(self) -> None:
        """Delete the Cluster with its Machines, and the Nodes."""
        for pod in (await self.kube.list(Pod, namespace=self.namespace)).items:
            with suppress(errors.NotFound):
                await self.kube.delete(Pod, pod.name, namespace=self.namespace, grace=timedelta())
        with suppress(errors.NotFound):
            await self.patch(Cluster, "c", {"spec": {"paused": False}})
            await self.kube.delete(Cluster, "c", namespace=self.namespace)
        await eventually(self._has_no_machines)
        for node in self.provider.nodes:
            with suppress(errors.NotFound):
                await self.kube.delete(Node, node)

    async def deployment(self) -> MachineDeployment:
        """Return the MachineDeployment."""
        return await self.kube.get(MachineDeployment, "fleet", namespace=self.namespace)


@asynccontextmanager
async def a_world(opening: Any, kubeconfig: Path | None) -> AsyncIterator[World]:
    """Create a namespace with a Cluster that is provisioned, and delete everything at the end."""
    async with opening() as kube:
        namespace = f"capi-{secrets.token_hex(4)}"
        world = World(kube, namespace, Provider(kube, namespace))
        await kube.create(Namespace(metadata=ObjectMeta(name=namespace)))
        async with asyncio.TaskGroup() as group:
            stub = group.create_task(world.provider.run())
            try:
                await create_cluster(world, kubeconfig)
                await world.create_template("t1", cpus=4)
                yield world
            finally:
                # Also after a failure: other tests use the cluster, too.
                await world.clean_up()
                stub.cancel()
                await kube.delete(Namespace, namespace)


async def create_cluster(
    world: World, kubeconfig: Path | None, *, has_control_plane: bool = True
) -> None:
    """Create the Cluster, with a kubeconfig for the core manager, and wait until it is provisioned."""
    endpoint = {"host": "127.0.0.1", "port": 6443}
    await world.create(TuistCluster, "c", spec={"controlPlaneEndpoint": endpoint})
    reference = world.reference(TuistCluster, "c")
    spec = {"infrastructureRef": reference, "controlPlaneEndpoint": endpoint}
    if kubeconfig is not None:
        await _create_kubeconfig(world, kubeconfig)
        if has_control_plane:
            spec["controlPlaneRef"] = await _create_control_plane(world)
    await world.create(Cluster, "c", spec=spec)

    async def is_provisioned() -> bool:
        found = await world.kube.get(Cluster, "c", namespace=world.namespace)
        return found.status.phase == "Provisioned"

    await eventually(is_provisioned)


async def _create_control_plane(world: World) -> dict[str, str]:
    """Create a control plane that is managed elsewhere, and return a reference to it."""
    await world.create(CONTROL_PLANES, "c")
    head = {"apiVersion": CONTROL_PLANES.api_version, "kind": CONTROL_PLANES.kind}
    body = await world.kube.read_wire(CONTROL_PLANES.path(world.namespace, "c"))
    body["status"] = {"ready": True, "initialized": True, "externalManagedControlPlane": True}
    await world.kube.replace_wire(
        CONTROL_PLANES, body, namespace=world.namespace, subresource="status"
    )
    return {**head, "name": "c", "namespace": world.namespace}


async def _create_kubeconfig(world: World, kubeconfig: Path) -> None:
    """Create the Secret by which the core manager reaches the cluster: here the server it runs on."""
    value = await asyncio.to_thread(kubeconfig.read_bytes)
    metadata = ObjectMeta(
        name="c-kubeconfig", namespace=world.namespace, labels={labels.CAPI_CLUSTER: "c"}
    )
    body = to_wire(Secret(metadata=metadata, type="cluster.x-k8s.io/secret", data={"value": value}))
    await world.kube.create_wire(Secret.resource, body, namespace=world.namespace)
