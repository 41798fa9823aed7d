"""The composition of `bramley runners`: its permissions, and the definition that it requires."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.coordination import Lease
from bramley.api.core import Event, Namespace, ServiceAccount
from bramley.api.meta import ObjectMeta, Resource
from bramley.api.names import groups, labels, runners
from bramley.api.pod import Pod
from bramley.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.app import embedded
from bramley.app import runners as process
from bramley.base.errors import BadConfiguration
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response, Stream, Transport
from bramley.runners import controllers
from bramley.runners.dispatch_client import DispatchClient, DispatchSettings
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.sim.fleet import cluster_settings
from bramley.sim.fleet.hosts import FleetSettings, ModelledHosts
from bramley.sim.fleet.images import ImageModel
from tests import virtual_time

EXAMPLES = Path(__file__).parents[3] / "examples"
OLD, NEW = "ghcr.io/example/runner:1", "ghcr.io/example/runner:2"
KINDS: dict[str, Resource] = {
    kind.resource.kind: kind.resource
    for kind in (Namespace, ServiceAccount, ClusterRole, ClusterRoleBinding, Role, RoleBinding)
}


async def create_all(kube: Client, file: str) -> None:
    for body in yaml.safe_load_all((EXAMPLES / file).read_text()):
        namespace = body["metadata"].get("namespace")
        await kube.create_wire(KINDS[body["kind"]], body, namespace=namespace)


@asynccontextmanager
async def a_cluster() -> AsyncIterator[tuple[embedded.Api, Client]]:
    clock = virtual_time.clock()
    running = embedded.running(
        clock=clock,
        settings=cluster_settings.api_settings(),
        keys=SigningKeys.in_memory(),
        controllers=True,
        timings=cluster_settings.timings(),
    )
    async with running as (api, token), Client(api.transport(token), clock=clock) as kube:
        yield api, kube


@dataclass(frozen=True, slots=True)
class Recorded:
    """A transport that records the requests which are forbidden."""

    transport: Transport
    forbidden: list[str] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        response = await self.transport.send(request)
        self._record(request, response.status)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self.transport.stream(request) as stream:
            self._record(request, stream.status)
            yield stream

    async def close(self) -> None:
        await self.transport.close()

    def _record(self, request: Request, status: int) -> None:
        if status == HTTPStatus.FORBIDDEN:
            self.forbidden.append(f"{request.method} {request.path}")


async def as_controller(api: embedded.Api, kube: Client) -> Recorded:
    """Return a transport with a token of the controller's ServiceAccount."""
    issued = await kube.request_token(
        runners.CONTROLLER_SERVICE_ACCOUNT,
        runners.CONTROLLER_NAMESPACE,
        audiences=(),
        expires=timedelta(days=1),
    )
    return Recorded(api.transport(issued.token))


def a_manager(kube: Client) -> Manager:
    clock, registry = virtual_time.clock(), CollectorRegistry()
    election = LeaderElectionSettings(runners.CONTROLLER_NAMESPACE, groups.RUNNERS_LEASE, "one")
    manager = Manager(
        kube,
        clock=clock,
        rng=random.Random(1),
        registry=registry,
        settings=ManagerSettings(election=election, tune_gc=False),
    )
    settings = process.Settings(pools=controllers.Settings(groups.RUNNERS_NAMESPACE))
    dispatch = DispatchClient(DispatchSettings())
    process.add_controllers(manager, settings, dispatch, clock=clock, registry=registry)
    return manager


async def until(kube: Client, image: str) -> RunnerPool:
    """Wait until every runner of the pool has the image and is ready."""
    async with asyncio.timeout(3600):
        while True:
            pool = await kube.get(RunnerPool, "macos", namespace=groups.RUNNERS_NAMESPACE)
            is_rolled = pool.status.last_good_image == image
            if is_rolled and pool.status.ready_replicas == pool.spec.replicas:
                return pool
            await asyncio.sleep(1)


async def test_controller_needs_only_the_permissions_of_the_example() -> None:
    spec = RunnerPoolSpec(
        image=OLD, fleet_selector="demo", dispatch_label="macos", runner_labels=[], replicas=2
    )
    pool = RunnerPool(
        metadata=ObjectMeta(name="macos", namespace=groups.RUNNERS_NAMESPACE), spec=spec
    )
    async with a_cluster() as (api, kube):
        await create_all(kube, "runners-rbac.yaml")
        for manifest in crds.manifests():
            await kube.create_wire(CustomResourceDefinition.resource, manifest)
        images = {each: ImageModel(size_bytes=1e9) for each in (OLD, NEW)}
        hosts = ModelledHosts(
            kube, images, clock=virtual_time.clock(), settings=FleetSettings(hosts=2)
        )
        transport = await as_controller(api, kube)
        restricted = Client(transport, clock=virtual_time.clock())
        async with hosts.running(), asyncio.TaskGroup() as group:
            await process.require_definition(restricted, groups.RUNNERS_NAMESPACE)
            manager = a_manager(restricted)
            task = group.create_task(manager.run())
            await kube.create(pool)
            await until(kube, OLD)
            change = {"spec": {"image": NEW}}
            await kube.merge_patch(RunnerPool, "macos", change, namespace=groups.RUNNERS_NAMESPACE)
            rolled = await until(kube, NEW)
            events = (await kube.list(Event, namespace=groups.RUNNERS_NAMESPACE)).items
            lease = await kube.get(
                Lease, groups.RUNNERS_LEASE, namespace=runners.CONTROLLER_NAMESPACE
            )
            await kube.delete(RunnerPool, "macos", namespace=groups.RUNNERS_NAMESPACE)
            left = await pods_left(kube)
            manager.stop()
            await asyncio.wait((task,))

    assert rolled.status.previous_good_image == OLD
    assert {"RollStarted", "RollCompleted"} <= {each.reason for each in events}
    assert lease.spec.holder_identity == "one"
    assert left == 0
    assert transport.forbidden == []


async def pods_left(kube: Client) -> int:
    """Return how many Pods and ServiceAccounts of runners are left a while after their pool was deleted."""
    await asyncio.sleep(120)
    selected: dict[str, Any] = {"namespace": groups.RUNNERS_NAMESPACE, "labels": labels.RUNNER_POOL}
    found = (await kube.list(Pod, **selected)).items
    return len(found) + len((await kube.list(ServiceAccount, **selected)).items)


async def test_missing_or_older_definition_is_refused_with_the_command_that_installs_it() -> None:
    manifest = next(each for each in crds.manifests() if "runnerpools" in each["metadata"]["name"])
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    async with a_cluster() as (_, kube):
        with pytest.raises(BadConfiguration, match="bramley crds"):
            await process.require_definition(kube, "default")

        schema["properties"]["status"]["properties"].pop("slots")
        await kube.create_wire(CustomResourceDefinition.resource, manifest)
        with pytest.raises(BadConfiguration, match=r"lacks status\.slots"):
            await process.require_definition(kube, "default")
