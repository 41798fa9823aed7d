"""A cluster with modelled hosts for tests, under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from bramley.api import conditions, names
from bramley.api.core import Node, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec, ResourceRequirements, Toleration
from bramley.api.staging import StagingReport, StagingRequest, parse_report
from bramley.app import embedded
from bramley.base import errors
from bramley.kube.client import Client
from bramley.sim.fleet import cluster_settings
from bramley.sim.fleet.dispatch import DispatchModel
from bramley.sim.fleet.hosts import FleetSettings, ModelledHosts
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import Job
from tests import virtual_time

NAMESPACE = "default"
POOL = "macos"
OLD = "ghcr.io/example/runner@sha256:" + "0" * 64
NEW = "ghcr.io/example/runner@sha256:" + "1" * 64
IMAGES: Mapping[str, ImageModel] = {
    OLD: ImageModel(size_bytes=1000),
    NEW: ImageModel(size_bytes=1000),
}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cluster, its modelled hosts, and their dispatch model."""

    kube: Client
    hosts: ModelledHosts
    dispatch: DispatchModel

    async def create_pod(self, name: str, image: str = OLD, *, node: str = "") -> Pod:
        """Create a Pod with its ServiceAccount, as the pool controller does."""
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        await self.kube.create(ServiceAccount(metadata=metadata))
        return await self.kube.create(a_pod(name, image, node=node))

    async def pod(self, name: str) -> Pod:
        return await self.kube.get(Pod, name, namespace=NAMESPACE)

    async def is_gone(self, name: str) -> bool:
        try:
            await self.pod(name)
        except errors.NotFound:
            return True
        return False

    async def delete_pod(self, name: str) -> None:
        await self.kube.delete(Pod, name, namespace=NAMESPACE)

    async def mark(self, name: str, label: str = labels.DRAIN_ELIGIBLE) -> None:
        patch = {"metadata": {"labels": {label: labels.TRUE}}}
        await self.kube.merge_patch(Pod, name, patch, namespace=NAMESPACE)

    async def stage(self, node: str, *images: str, rate: float | None = None) -> None:
        text = StagingRequest(images, rate).text() if images else None
        patch = {"metadata": {"annotations": {names.annotations.STAGE_IMAGES: text}}}
        await self.kube.merge_patch(Node, node, patch)

    async def report(self, node: str) -> StagingReport:
        found = await self.kube.get(Node, node)
        report = parse_report(found.metadata.annotations.get(names.annotations.STAGED_IMAGES, ""))
        assert report is not None
        return report

    async def has_golden(self, node: str, image: str) -> bool:
        found = await self.kube.get(Node, node)
        return found.metadata.labels.get(labels.golden(image)) == labels.TRUE

    async def seconds_until(self, name: str, condition: Callable[[Pod], bool]) -> float:
        """Wait until a Pod meets the condition; return after how many whole seconds it did."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not condition(await self.pod(name)):
            await asyncio.sleep(1)
            assert loop.time() - began < 100_000
        return loop.time() - began

    def job(self, minutes: float = 10) -> Job:
        now = self.dispatch.clock.now()
        return Job(POOL, timedelta(minutes=minutes), now)


def is_ready(pod: Pod) -> bool:
    return conditions.is_true(pod.status.conditions, "Ready")


def has_phase(phase: str) -> Callable[[Pod], bool]:
    return lambda pod: pod.status.phase == phase


def waiting_reason(pod: Pod) -> str:
    states = [each.state.waiting for each in pod.status.container_statuses]
    return next((each.reason for each in states if each is not None), "")


def a_pod(name: str, image: str, *, node: str = "") -> Pod:
    selector = {
        labels.OS: labels.DARWIN,
        labels.RUNTIME: labels.RUNTIME_TART,
        labels.FLEET: "demo",
    }
    amounts = {"cpu": "8", "memory": "14336Mi"}
    container = Container(
        name="runner",
        image=image,
        resources=ResourceRequirements(requests={**amounts}, limits={**amounts}),
    )
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=NAMESPACE, labels={labels.RUNNER_POOL: POOL, labels.RUNNER: "true"}
        ),
        spec=PodSpec(
            containers=[container],
            node_name=node,
            node_selector=selector,
            tolerations=[
                Toleration(key=labels.MACOS_TAINT, operator="Exists", effect=labels.NO_SCHEDULE)
            ],
            service_account_name=name,
            restart_policy="Never",
        ),
    )


@asynccontextmanager
async def a_fleet(
    settings: FleetSettings | None = None,
    images: Mapping[str, ImageModel] = IMAGES,
    *,
    seed: int = 0,
) -> AsyncIterator[Fleet]:
    """Run a cluster with modelled hosts and a dispatch model."""
    clock = virtual_time.clock()
    async with AsyncExitStack() as stack:
        api, token = await stack.enter_async_context(
            embedded.running(
                clock=clock,
                seed=seed,
                settings=cluster_settings.api_settings(),
                controllers=True,
                timings=cluster_settings.timings(),
            )
        )
        kube = await stack.enter_async_context(Client(api.transport(token), clock=clock))
        dispatch = DispatchModel(kube, clock=clock, watches_pools=False)
        dispatch.set_pool(POOL, label=POOL, image=OLD)
        settings = settings or FleetSettings(on_disk=(OLD,))
        hosts = ModelledHosts(kube, images, clock=clock, settings=settings, guests=dispatch)
        await stack.enter_async_context(dispatch.running())
        await stack.enter_async_context(hosts.running())
        # Until the node controller has removed the taint of new Nodes.
        await asyncio.sleep(1)
        yield Fleet(kube, hosts, dispatch)
