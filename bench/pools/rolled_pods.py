"""The writes of the pool controller during a roll, counted under virtual time on the embedded API with modelled Macs."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.meta import ObjectMeta
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.app import embedded
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response, Stream, Transport
from bramley.runners import controllers
from bramley.runners.pod_template import TemplateSettings
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.sim.fleet import cluster_settings
from bramley.sim.fleet.dispatch import DispatchModel
from bramley.sim.fleet.hosts import FleetSettings, ModelledHosts
from bramley.sim.fleet.images import ImageModel
from tests import virtual_time

NAMESPACE = "default"
POOL = "macos"
PODS = 100
OLD, NEW = (f"ghcr.io/example/runner@sha256:{digit * 64}" for digit in "12")
_READS = ("GET", "HEAD")
_LEASES = "/leases"


@dataclass(frozen=True, slots=True)
class Counting:
    """Sends the requests of the controller, and counts its writes by method and resource."""

    inner: Transport
    writes: Counter[str] = field(default_factory=Counter)

    async def send(self, request: Request) -> Response:
        """Send one request."""
        if request.method not in _READS and _LEASES not in request.path:
            self.writes[f"{request.method} {resource_of(request.path)}"] += 1
        return await self.inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Open a stream."""
        async with self.inner.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        """Close the connection."""
        await self.inner.close()


def resource_of(path: str) -> str:
    """Return the resource of a path, with its subresource."""
    parts = path.strip("/").split("/")
    # After the group and version, and the namespace.
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return "/".join((parts[0], *parts[2:]))


def count_writes() -> dict[str, int]:
    """Roll a pool, and return the controller's writes from the change of the image to the end."""
    return virtual_time.run(_count())


async def _count() -> dict[str, int]:
    clock = virtual_time.clock()
    async with AsyncExitStack() as stack:
        api, token = await stack.enter_async_context(
            embedded.running(
                clock=clock,
                settings=cluster_settings.api_settings(),
                controllers=True,
                timings=cluster_settings.timings(),
            )
        )
        kube = await stack.enter_async_context(Client(api.transport(token), clock=clock))
        for manifest in crds.manifests():
            await kube.create_wire(CustomResourceDefinition.resource, manifest)
        dispatch = DispatchModel(kube, clock=clock)
        images = {each: ImageModel(size_bytes=4e9, boot_noise=0.1) for each in (OLD, NEW)}
        hosts = ModelledHosts(
            kube,
            images,
            clock=clock,
            settings=_fleet(),
            guests=dispatch,
        )
        await stack.enter_async_context(dispatch.running())
        await stack.enter_async_context(hosts.running())
        transport = Counting(api.transport(token))
        await stack.enter_async_context(_controller(Client(transport, clock=clock), clock))
        return await _roll(kube, transport)


def _fleet() -> FleetSettings:
    """Return Macs with two VMs each, as agents allow by default."""
    return FleetSettings(hosts=PODS // 2, pods=2, on_disk=(OLD,), host_bytes_per_second=125e6)


@asynccontextmanager
async def _controller(kube: Client, clock: virtual_time.VirtualClock) -> AsyncIterator[None]:
    registry = CollectorRegistry()
    manager = Manager(
        kube,
        clock=clock,
        rng=random.Random(0),
        registry=registry,
        settings=ManagerSettings(
            election=LeaderElectionSettings(NAMESPACE, "runners", "first"), tune_gc=False
        ),
    )
    template = TemplateSettings(dispatch_url="https://dispatch.example/dispatch")
    controllers.add(
        manager, controllers.Settings(NAMESPACE, template), clock=clock, registry=registry
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        yield
        manager.stop()
        await task


async def _roll(kube: Client, transport: Counting) -> dict[str, int]:
    spec = RunnerPoolSpec(
        image=OLD,
        fleet_selector="demo",
        dispatch_label=POOL,
        runner_labels=["macOS"],
        replicas=PODS,
        pod_cpu_milli=4000,
        pod_memory_mb=7168,
    )
    await kube.create(RunnerPool(metadata=ObjectMeta(name=POOL, namespace=NAMESPACE), spec=spec))
    await _until_good(kube, OLD)
    transport.writes.clear()
    await kube.merge_patch(RunnerPool, POOL, {"spec": {"image": NEW}}, namespace=NAMESPACE)
    await _until_good(kube, NEW)
    return dict(sorted(transport.writes.items()))


async def _until_good(kube: Client, image: str) -> None:
    """Wait until all Pods have an image and are Ready, and their predecessors are gone."""
    while True:
        pool = await kube.get(RunnerPool, POOL, namespace=NAMESPACE)
        status = pool.status
        if status.last_good_image == image and status.ready_replicas == PODS:
            break
        await asyncio.sleep(1)
    await asyncio.sleep(60)
