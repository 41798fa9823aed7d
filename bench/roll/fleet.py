"""A fleet for one run: the embedded API with its scheduler, modelled hosts behind one uplink, dispatch, jobs and an observer.

Of the controllers of a cluster only the scheduler runs: without admission nothing waits for the others, and a run of a day stays
short.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.api import conditions, crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.meta import ObjectMeta
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.apiserver.controllers.scheduling import scheduler
from bramley.apiserver.store.store import Store
from bramley.app import embedded
from bramley.kube.client import Client
from bramley.runtime.informer import Informer, InformerSettings
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.metrics import RuntimeMetrics
from bramley.sim.fleet import cluster_settings
from bramley.sim.fleet.dispatch import DispatchModel
from bramley.sim.fleet.hosts import FleetSettings, ModelledHosts
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import JobSource
from bramley.sim.fleet.staging import StagingSettings
from tests import virtual_time

NAMESPACE = "default"
POOL = "macos"
OLD = "ghcr.io/example/runner@sha256:" + "0" * 64
NEW = "ghcr.io/example/runner@sha256:" + "1" * 64
# Watches that last for hours: nothing is lost in this process.
_INFORMER = InformerSettings(watch_timeout=timedelta(hours=6), idle_deadline=timedelta(hours=12))


@dataclass(frozen=True, slots=True)
class Scenario:
    """The size of a run: one Gbit/s, one Pod per host, and jobs that keep about half of the hosts busy."""

    hosts: int = 200
    image_bytes: float = 40e9
    bytes_per_second: float = 125e6
    cap_percent: int = 5
    median_job: timedelta = timedelta(minutes=40)
    job_sigma: float = 0.5
    busy_share: float = 0.5
    warm_up: timedelta = timedelta(minutes=90)
    seed: int = 1

    @property
    def cap(self) -> int:
        """Return how many Pods a roll may change at once."""
        return max(1, self.hosts * self.cap_percent // 100)

    @property
    def bandwidth_limit(self) -> timedelta:
        """Return how long the uplink needs for one image per host."""
        return timedelta(seconds=self.hosts * self.image_bytes / self.bytes_per_second)

    @property
    def jobs_per_hour(self) -> float:
        """Return the rate of jobs that keeps the share of hosts busy."""
        # The mean of a lognormal distribution is above its median.
        mean = self.median_job.total_seconds() * math.exp(self.job_sigma**2 / 2)
        return self.hosts * self.busy_share * 3600 / mean


@dataclass(slots=True, eq=False)
class Observer:
    """The Pods of the pool as the API shows them, and how many were Ready since when."""

    informer: Informer[Pod]
    clock: virtual_time.VirtualClock
    # Seconds and the number of Ready Pods from then on.
    ready: list[tuple[float, int]] = field(default_factory=list)
    # Set by changes that a controller reacts to.
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_change(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        """Handle a change of a Pod."""
        before, after = (
            None if pod is None else (is_warm(pod), is_alive(pod)) for pod in (old, new)
        )
        difference = bool(after and after[0]) - bool(before and before[0])
        if difference:
            count = self.ready[-1][1] if self.ready else 0
            self.ready.append((self.clock.monotonic(), count + difference))
        if before != after:
            self.changed.set()

    def pods(self) -> list[Pod]:
        """Return all Pods."""
        return self.informer.cache.all()

    def stale(self) -> list[Pod]:
        """Return the Pods of the old image that are alive."""
        return [pod for pod in self.pods() if is_alive(pod) and image_of(pod) == OLD]


def is_alive(pod: Pod) -> bool:
    """Return whether a Pod is neither finished nor being deleted."""
    return not pod.deleting and pod.status.phase not in {"Succeeded", "Failed"}


def is_warm(pod: Pod) -> bool:
    """Return whether a Pod is alive and Ready."""
    return is_alive(pod) and is_ready(pod)


def is_ready(pod: Pod) -> bool:
    """Return whether a Pod is Ready."""
    return conditions.is_true(pod.status.conditions, "Ready")


def image_of(pod: Pod) -> str:
    """Return the image of a Pod."""
    return pod.spec.containers[0].image


@dataclass(frozen=True, slots=True)
class Fleet:
    """One fleet that runs."""

    scenario: Scenario
    kube: Client
    clock: virtual_time.VirtualClock
    dispatch: DispatchModel
    hosts: ModelledHosts
    observer: Observer
    jobs: JobSource

    def manager(self) -> Manager:
        """Return a manager for a controller of this fleet."""
        return _manager(self.kube, self.clock, self.scenario.seed)

    async def create_pool(self) -> RunnerPool:
        """Create the pool with the old image and one runner per host."""
        spec = RunnerPoolSpec(
            image=OLD,
            fleet_selector="demo",
            dispatch_label=POOL,
            runner_labels=["macOS"],
            replicas=self.scenario.hosts,
        )
        metadata = ObjectMeta(name=POOL, namespace=NAMESPACE)
        return await self.kube.create(RunnerPool(metadata=metadata, spec=spec))

    async def roll(self) -> None:
        """Give the pool the new image."""
        patch = {"spec": {"image": NEW}}
        await self.kube.merge_patch(RunnerPool, POOL, patch, namespace=NAMESPACE)


@asynccontextmanager
async def a_fleet(scenario: Scenario) -> AsyncIterator[Fleet]:
    """Run a fleet whose hosts have the old image; jobs arrive from the beginning."""
    clock = virtual_time.clock()
    async with AsyncExitStack() as stack:
        kube = await _cluster(stack, clock, scenario.seed)
        dispatch = DispatchModel(kube, clock=clock, seed=scenario.seed)
        hosts = ModelledHosts(
            kube, _images(scenario), clock=clock, settings=_settings(scenario), guests=dispatch
        )
        source = _job_source(dispatch, clock, scenario)
        observer = _observer(kube, clock)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(observer.informer.run()), group.create_task(source.run())]
        await stack.enter_async_context(dispatch.running())
        await stack.enter_async_context(hosts.running())
        yield Fleet(scenario, kube, clock, dispatch, hosts, observer, source)
        for task in tasks:
            task.cancel()


async def _cluster(stack: AsyncExitStack, clock: virtual_time.VirtualClock, seed: int) -> Client:
    store = await stack.enter_async_context(Store.in_memory(clock=clock))
    tokens = Tokens.in_memory()
    token = tokens.issue(ADMIN, ADMIN_GROUPS)
    settings = replace(
        cluster_settings.api_settings(),
        cluster_admission=False,
        bookmark_every=timedelta(hours=2),
        watch_duration=(timedelta(hours=12), timedelta(hours=24)),
    )
    cluster = embedded.build(store, tokens, clock=clock, rng=random.Random(seed), settings=settings)
    await embedded.prepare(cluster.api, token)
    kube = await stack.enter_async_context(Client(cluster.api.transport(token), clock=clock))
    for manifest in crds.manifests():
        await kube.create_wire(CustomResourceDefinition.resource, manifest)
    manager = _manager(kube, clock, seed)
    scheduler.add(manager, kube, clock=clock, timings=cluster_settings.timings())
    await stack.enter_async_context(running(manager))
    return kube


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[None]:
    """Run the controllers of a manager."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        await manager.leading.wait()
        yield
        manager.stop()
        await task


def _manager(kube: Client, clock: virtual_time.VirtualClock, seed: int) -> Manager:
    return Manager(
        kube,
        clock=clock,
        rng=random.Random(seed),
        registry=CollectorRegistry(),
        settings=ManagerSettings(informer=_INFORMER, tune_gc=False),
    )


def _observer(kube: Client, clock: virtual_time.VirtualClock) -> Observer:
    informer = Informer(
        Pod,
        kube,
        clock=clock,
        rng=random.Random(0),
        metrics=RuntimeMetrics(CollectorRegistry()),
        settings=_INFORMER,
    )
    observer = Observer(informer, clock)
    informer.on_change(observer.on_change)
    return observer


def _images(scenario: Scenario) -> dict[str, ImageModel]:
    model = ImageModel(size_bytes=scenario.image_bytes, boot_noise=0.1)
    return {OLD: model, NEW: model}


def _settings(scenario: Scenario) -> FleetSettings:
    return FleetSettings(
        hosts=scenario.hosts,
        on_disk=(OLD,),
        uplink_bytes_per_second=scenario.bytes_per_second,
        host_bytes_per_second=scenario.bytes_per_second,
        # Room for both images, and a little more.
        disk_bytes=2.5 * scenario.image_bytes,
        seed=scenario.seed,
        # Each report is a write that all watchers of Nodes see.
        staging=StagingSettings(progress_seconds=600),
    )


def _job_source(
    dispatch: DispatchModel, clock: virtual_time.VirtualClock, scenario: Scenario
) -> JobSource:
    return JobSource(
        dispatch,
        POOL,
        clock=clock,
        per_hour=scenario.jobs_per_hour,
        median=scenario.median_job,
        sigma=scenario.job_sigma,
        seed=scenario.seed,
    )
