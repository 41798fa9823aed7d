"""The small controllers of Cluster API on the embedded API, under virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from bramley.api import cluster_api, conditions, crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.cluster_api import Cluster, Machine, MachineDeployment
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.names import cluster_api as names
from bramley.api.tuist_cluster import TuistCluster
from bramley.app import embedded
from bramley.app.cluster_api import cluster_api_controllers, install_definitions
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.in_process import InProcessTransport
from bramley.kube.transport import Request, Response
from bramley.runtime.manager import Manager, ManagerSettings
from tests import virtual_time
from tests.contract.cluster_api.infrastructure import Provider
from tests.contract.cluster_api.targets import World
from tests.scenarios.world import running

NAMESPACE = "default"


@dataclass(slots=True)
class LossyTransport:
    """Loses the response to one write, which the server has carried out."""

    inner: InProcessTransport
    lost: int
    writes: int = 0

    async def send(self, request: Request) -> Response:
        response = await self.inner.send(request)
        if request.method != "GET":
            self.writes += 1
            if self.writes == self.lost:
                raise errors.ApiUnavailable("the response was lost")
        return response

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@asynccontextmanager
async def a_world() -> AsyncIterator[tuple[World, embedded.Api, InProcessTransport]]:
    """Run the API with all definitions, a Cluster and a template, without controllers."""
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, token):
        transport = api.transport(token)
        async with Client(transport, clock=clock) as kube:
            for manifest in crds.manifests():
                await kube.create_wire(CustomResourceDefinition.resource, manifest)
            await install_definitions(kube)
            world = World(kube, NAMESPACE, Provider(kube, NAMESPACE))
            await world.create(TuistCluster, "c")
            reference = world.reference(TuistCluster, "c")
            await world.create(Cluster, "c", spec={"infrastructureRef": reference})
            yield world, api, transport


async def controllers(kube: Client) -> Manager:
    return await cluster_api_controllers(
        kube,
        clock=virtual_time.clock(),
        rng=random.Random(0),
        registry=CollectorRegistry(),
        settings=ManagerSettings(tune_gc=False),
    )


@pytest.mark.parametrize("lost", range(5, 24))
async def test_lost_response_makes_no_surplus_machine(lost: int) -> None:
    """The first four writes are those of the definitions."""
    async with a_world() as (world, _, transport):
        lossy = LossyTransport(transport, lost)
        kube = Client(lossy, clock=virtual_time.clock())  # type: ignore[arg-type]
        await world.create_template("t1", cpus=4)
        await world.create_deployment(2)
        seen: set[str] = set()
        async with running(await controllers(kube)), asyncio.TaskGroup() as group:
            stub = group.create_task(world.provider.run())
            for _ in range(20):
                await asyncio.sleep(1)
                seen |= {each.uid for each in await world.machines()}
            stub.cancel()

        assert lossy.writes > lost
        assert len(seen) == len(await world.wait_for_running(2)) == 2


async def test_missing_template_is_reported_until_it_exists() -> None:
    async with a_world() as (world, _, _):
        await world.create_deployment(1)
        async with running(await controllers(world.kube)), asyncio.TaskGroup() as group:
            stub = group.create_task(world.provider.run())
            await asyncio.sleep(5)
            (machine,) = await world.machines()
            ready = conditions.find(machine.status.conditions, names.INFRASTRUCTURE_READY)
            assert ready is not None
            assert ready.reason == names.TEMPLATE_CLONING_FAILED
            assert '"t1" not found' in ready.message

            await world.create_template("t1", cpus=4)
            await world.wait_for_running(1)
            stub.cancel()


async def test_converged_controllers_write_nothing() -> None:
    async with a_world() as (world, api, _):
        await world.create_template("t1", cpus=4)
        await world.create_deployment(2)
        async with running(await controllers(world.kube)), asyncio.TaskGroup() as group:
            stub = group.create_task(world.provider.run())
            await world.wait_for_running(2)
            # Heartbeats are writes, too.
            stub.cancel()
            await asyncio.sleep(60)
            revision = api.store.revision

            await asyncio.sleep(6 * 3600)

            assert api.store.revision == revision


async def test_infrastructure_that_was_deleted_fails_its_machine() -> None:
    async with a_world() as (world, _, _):
        await world.create_template("t1", cpus=4)
        await world.create_deployment(1)
        async with running(await controllers(world.kube)), asyncio.TaskGroup() as group:
            stub = group.create_task(world.provider.run())
            (machine,) = await world.wait_for_running(1)
            (infrastructure,) = await world.infrastructure()
            kind = type(infrastructure)
            await world.kube.delete(kind, infrastructure.name, namespace=NAMESPACE)
            await asyncio.sleep(30)

            assert await world.infrastructure() == []
            (failed,) = await world.machines()
            assert (failed.uid, failed.status.phase) == (machine.uid, "Failed")
            assert failed.status.failure_reason == names.INVALID_CONFIGURATION
            await world.kube.delete(Machine, machine.name, namespace=NAMESPACE)
            await asyncio.sleep(5)
            (replacement,) = await world.wait_for_running(1)
            assert replacement.uid != machine.uid
            stub.cancel()


async def test_definitions_of_another_installation_are_refused() -> None:
    async with embedded.running(clock=virtual_time.clock()) as (api, token):
        kube = Client(api.transport(token), clock=virtual_time.clock())
        foreign = cluster_api.manifests()[0]
        del foreign["metadata"]["labels"]
        await kube.create_wire(CustomResourceDefinition.resource, foreign)

        with pytest.raises(errors.BadConfiguration, match="belongs to another installation"):
            await controllers(kube)


async def test_rolling_updates_are_rejected() -> None:
    async with a_world() as (world, _, _):
        template = world.reference(ScalewayAppleSiliconMachineTemplate, "t1")
        machine = {"clusterName": "c", "infrastructureRef": template}
        strategy = {"type": "RollingUpdate"}
        spec = {"clusterName": "c", "strategy": strategy, "template": {"spec": machine}}

        with pytest.raises(errors.InvalidSpec, match="OnDelete"):
            await world.create(MachineDeployment, "fleet", spec=spec)
