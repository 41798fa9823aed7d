"""The Pods of a Deployment are restarted when the set of ready Macs changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api.apps import Deployment, DeploymentSpec
from bramley.api.core import Node
from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.names import labels
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response
from bramley.machines import fleet_spread
from bramley.machines.fleet_spread import Settings, hash_of
from bramley.runtime.manager import Manager, ManagerSettings
from tests import virtual_time
from tests.scenarios import world as clusters
from tests.scenarios.machines.gates import FORBIDDEN

NAMESPACE = "default"
NAME = "processor"
FLEET = {labels.FLEET: "builders"}
PATH = Deployment.resource.path(NAMESPACE, NAME)


@dataclass(slots=True)
class CountedTransport:
    """Requests by method and path of Deployments; refuses all of them for some time."""

    inner: Any
    requests: list[tuple[str, str]] = field(default_factory=list)
    is_refused: bool = False

    async def send(self, request: Request) -> Response:
        if "/deployments" in request.path:
            self.requests.append((request.method, request.path))
            if self.is_refused:
                return FORBIDDEN
        response: Response = await self.inner.send(request)
        return response

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@dataclass(slots=True)
class World:
    """A cluster without controllers of Deployments, so that each test sets the status."""

    kube: Client
    transport: CountedTransport

    async def node(
        self, name: str, *, ready: bool = True, os: str = labels.DARWIN, fleet: str = "builders"
    ) -> None:
        marks = {labels.OS: os, labels.RUNTIME: labels.RUNTIME_TART, labels.FLEET: fleet}
        await self.kube.create(Node(metadata=ObjectMeta(name=name, labels=marks)))
        await self.set_ready(name, ready=ready)

    async def set_ready(self, name: str, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready)}
        status = {"status": {"conditions": [condition]}}
        await self.kube.merge_patch(Node, name, status, subresource="status")

    async def create_deployment(self) -> None:
        pod = {
            "metadata": {"labels": {"app": NAME}},
            "spec": {"nodeSelector": FLEET, "containers": [{"name": "c", "image": "i"}]},
        }
        spec = DeploymentSpec(
            replicas=2, selector=LabelSelector(match_labels={"app": NAME}), template=pod
        )
        metadata = ObjectMeta(name=NAME, namespace=NAMESPACE)
        await self.kube.create(Deployment(metadata=metadata, spec=spec))

    async def settle(self) -> None:
        generation = (await self.deployment()).metadata.generation
        names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {"observedGeneration": generation} | dict.fromkeys(names, 2)
        await self.kube.merge_patch(
            Deployment, NAME, {"status": status}, namespace=NAMESPACE, subresource="status"
        )

    async def deployment(self) -> Deployment:
        return await self.kube.get(Deployment, NAME, namespace=NAMESPACE)

    async def hash(self) -> str | None:
        template = (await self.deployment()).spec.template
        found: dict[str, str] = template["metadata"].get("annotations", {})
        return found.get(annotation_names.FLEET_HASH)

    async def expected(self, *names: str) -> str:
        return hash_of([await self.kube.get(Node, name) for name in names], FLEET)


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    async with clusters.a_world() as cluster:
        transport = CountedTransport(cluster.api.transport(cluster.token))
        clock = virtual_time.clock()
        client = Client(transport, clock=clock)  # type: ignore[arg-type]
        manager = Manager(
            client,
            clock=clock,
            rng=random.Random(0),
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False),
        )
        fleet_spread.add(manager, client, Settings(NAME, NAMESPACE))
        async with clusters.running(manager):
            yield World(cluster.kube, transport)


async def test_deployment_rolls_when_a_mac_comes_or_goes() -> None:
    async with a_world() as world:
        await world.create_deployment()
        await world.settle()
        await world.node("a")
        await world.node("b", ready=False)
        await world.node("linux", os=labels.LINUX)
        await world.node("other", fleet="runners")
        await asyncio.sleep(60)
        await world.settle()
        await asyncio.sleep(60)
        one = await world.hash()
        assert one == await world.expected("a")

        await world.settle()
        await world.set_ready("b", ready=True)
        await asyncio.sleep(5)
        assert await world.hash() == await world.expected("a", "b")

        await world.settle()
        await world.kube.delete(Node, "b")
        await asyncio.sleep(5)
        assert await world.hash() == one


async def test_change_during_a_rollout_is_written_after_it() -> None:
    async with a_world() as world:
        await world.create_deployment()
        await world.node("a")
        await asyncio.sleep(300)
        assert await world.hash() is None

        await world.settle()
        await asyncio.sleep(31)
        assert await world.hash() == await world.expected("a")


async def test_heartbeats_cost_no_request_and_an_unchanged_fleet_no_write() -> None:
    async with a_world() as world:
        await world.create_deployment()
        await world.settle()
        await world.node("a")
        await asyncio.sleep(60)
        await world.settle()
        await asyncio.sleep(60)
        before = len(world.transport.requests)
        for number in range(10):
            patch = {"status": {"capacity": {"cpu": str(number)}}}
            await world.kube.merge_patch(Node, "a", patch, subresource="status")
            await asyncio.sleep(10)
        assert len(world.transport.requests) == before

        await asyncio.sleep(3600)
        later = world.transport.requests[before:]
        assert later
        # Of all requests that a role has to permit: get and patch on one name.
        assert set(later) == {("GET", PATH)}
        assert set(world.transport.requests) == {("GET", PATH), ("PATCH", PATH)}


async def test_deployment_that_is_missing_is_found_later() -> None:
    async with a_world() as world:
        await world.node("a")
        await asyncio.sleep(60)
        await world.create_deployment()
        await world.settle()
        await asyncio.sleep(660)
        assert await world.hash() == await world.expected("a")


async def test_refused_request_is_repeated() -> None:
    async with a_world() as world:
        world.transport.is_refused = True
        await world.create_deployment()
        await world.settle()
        await world.node("a")
        await asyncio.sleep(120)
        assert await world.hash() is None

        world.transport.is_refused = False
        await asyncio.sleep(60)
        assert await world.hash() == await world.expected("a")
