"""A cluster with modelled Macs, a dispatch model and the real pool controller under virtual time.

Every write of a controller is a checkpoint: the invariants of rolls are checked right after it on what the server stores, and the
controller may be killed before or after it. Its watches may be delayed, and there may be two controllers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api import crds, names
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import Node, ServiceAccount
from bramley.api.meta import ObjectMeta, to_wire
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.app import embedded
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.client import Client
from bramley.kube.transport import Transport
from bramley.runners import controllers
from bramley.runners import dispatch_client as signals
from bramley.runners.pod_template import TemplateSettings
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.sim.fleet import cluster_settings
from bramley.sim.fleet.dispatch import DispatchModel
from bramley.sim.fleet.hosts import FleetSettings, ModelledHosts
from bramley.sim.fleet.images import ImageModel
from bramley.sim.fleet.jobs import JobSource
from bramley.sim.fleet.vms import Guests
from tests import virtual_time
from tests.scenarios.runners.checkpoints import Checkpoints, CheckpointTransport
from tests.scenarios.runners.invariants import Invariants, image_of, is_alive, is_ready

NAMESPACE = "default"
POOL = "macos"
DISPATCH_URL = "https://dispatch.example/api/internal/runners/dispatch"


def image(digit: int) -> str:
    return "ghcr.io/example/runner@sha256:" + f"{digit:x}" * 64


OLD, NEW, NEWER = image(1), image(2), image(3)
GB = 1e9
_POOL_DEFINITION = next(each for each in crds.KINDS if each.kind is RunnerPool)
_POOL_MANIFEST = to_wire(crds.definition(_POOL_DEFINITION))
IMAGES = {each: ImageModel(size_bytes=4 * GB) for each in (OLD, NEW, NEWER)}


@dataclass(frozen=True, slots=True)
class ModelSignals:
    """The signals of the dispatch model in the shape of the HTTP client, after a delay."""

    dispatch: DispatchModel
    delay: float = 0.0

    async def desired_replicas(self, pool: str) -> signals.ScalingSignals:  # noqa: ARG002
        """Return no demand."""
        return signals.ScalingSignals(claimed=0, queued=0, p95_concurrent_last_hour=0)

    async def roll_signals(self, pool: str, since: datetime) -> signals.RollSignals | None:
        """Return polls and jobs."""
        await asyncio.sleep(self.delay)
        found = await self.dispatch.roll_signals(pool, since)
        return signals.RollSignals(
            pool=pool,
            pods={
                name: signals.PodSignals(first_poll_at=at) for name, at in found.first_polls.items()
            },
            images={
                name: signals.ImageSignals(finished=jobs.finished, failed=jobs.failed)
                for name, jobs in found.images.items()
            },
        )


@dataclass(frozen=True, slots=True)
class RunningController:
    """A controller, its connection and the task that runs it."""

    manager: Manager
    connection: CheckpointTransport
    task: asyncio.Task[None]
    registry: CollectorRegistry

    async def kill(self) -> None:
        """End the controller at once; it sends nothing any more, and releases no lease."""
        self.connection.is_dead = True
        await self._cancel()

    async def stop(self) -> None:
        """Stop the controller; it ends what it does and releases its lease."""
        self.manager.stop()
        await asyncio.wait((self.task,))

    async def _cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


@dataclass(slots=True, eq=False)
class World:
    """A cluster, its hosts, dispatch, the controllers, and what is checked about them."""

    api: embedded.Api
    kube: Client
    hosts: ModelledHosts
    dispatch: DispatchModel | None
    invariants: Invariants
    checkpoints: Checkpoints
    group: asyncio.TaskGroup
    token: Secret
    has_dispatch: bool = True
    seed: int = 0
    has_signals: bool = False
    sessions: signals.Sessions | None = None
    controllers: list[RunningController] = field(default_factory=list)
    job_source: asyncio.Task[None] | None = None

    def connect(self) -> Transport:
        """Return a connection to the API."""
        return self.api.transport(self.token)

    def start_controller(
        self, identity: str = "", *, delay: float = 0.0, signals_delay: float = 0.0
    ) -> RunningController:
        """Start a controller, with leader election if it has an identity; its watches are delayed by up to `delay` seconds."""
        connection = CheckpointTransport(
            self.connect(), self.checkpoints, delay, rng=random.Random(f"{self.seed}/{identity}")
        )
        registry, clock = CollectorRegistry(), virtual_time.clock()
        election = LeaderElectionSettings(NAMESPACE, "runners", identity) if identity else None
        manager = Manager(
            Client(connection, clock=clock),
            clock=clock,
            rng=random.Random(f"{self.seed}/{identity}/{len(self.controllers)}"),
            registry=registry,
            settings=ManagerSettings(election=election, tune_gc=False),
        )
        template = TemplateSettings(dispatch_url=DISPATCH_URL if self.has_dispatch else "")
        controllers.add(
            manager,
            controllers.Settings(NAMESPACE, template),
            clock=clock,
            registry=registry,
            signals=(
                ModelSignals(self.dispatch, signals_delay)
                if self.dispatch and self.has_signals
                else None
            ),
            sessions=self.sessions,
        )
        task = self.group.create_task(_run(manager))
        self.controllers.append(RunningController(manager, connection, task, registry))
        return self.controllers[-1]

    async def create_pool(self, name: str = POOL, **changes: Any) -> RunnerPool:
        """Create a pool; keywords are fields of its spec."""
        defaults: dict[str, Any] = {
            "image": OLD,
            "fleet_selector": "demo",
            "dispatch_label": name,
            "runner_labels": ["macOS"],
            "replicas": len(self.hosts.hosts),
        }
        spec = RunnerPoolSpec(**{**defaults, **changes})
        pool = RunnerPool(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec)
        return await self.kube.create(pool)

    async def patch(self, spec: Mapping[str, Any], name: str = POOL) -> None:
        await self.kube.merge_patch(RunnerPool, name, {"spec": spec}, namespace=NAMESPACE)

    async def annotate(self, changes: Mapping[str, str | None], name: str = POOL) -> None:
        patch = {"metadata": {"annotations": changes}}
        await self.kube.merge_patch(RunnerPool, name, patch, namespace=NAMESPACE)

    async def pool(self, name: str = POOL) -> RunnerPool:
        return await self.kube.get(RunnerPool, name, namespace=NAMESPACE)

    async def pods(self, name: str = POOL) -> list[Pod]:
        found = await self.kube.list(Pod, namespace=NAMESPACE, labels={labels.RUNNER_POOL: name})
        return found.items

    async def alive(self, name: str = POOL) -> list[Pod]:
        """Return the Pods of a pool that have neither ended nor are being deleted."""
        return [pod for pod in await self.pods(name) if is_alive(pod)]

    async def accounts(self) -> list[ServiceAccount]:
        return (
            await self.kube.list(ServiceAccount, namespace=NAMESPACE, labels=labels.RUNNER_POOL)
        ).items

    async def node(self, name: str) -> Node:
        return await self.kube.get(Node, name)

    async def until(
        self, predicate: Callable[[RunnerPool], bool], *, within: float = 3600, name: str = POOL
    ) -> RunnerPool:
        """Wait until the pool meets the predicate; fail on a violated invariant."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not predicate(pool := await self.pool(name)):
            self.invariants.check()
            assert loop.time() - began < within, f"not within {within} s: {pool.status}"
            await asyncio.sleep(max(1.0, (loop.time() - began) / 50))
        self.invariants.check()
        return pool

    async def until_ready(self, count: int, name: str = POOL) -> RunnerPool:
        return await self.until(lambda pool: pool.status.ready_replicas == count, name=name)

    async def until_rolled(
        self, image_: str, *, within: float = 36_000, name: str = POOL
    ) -> RunnerPool:
        """Wait until a roll to this image is complete."""
        return await self.until(
            lambda pool: pool.status.last_good_image == image_ and pool.status.roll_phase == "Idle",
            within=within,
            name=name,
        )

    async def until_settled(
        self, image_: str | None, *, within: float = 36_000, name: str = POOL
    ) -> RunnerPool:
        """Wait until a pool has all its Pods with this image, or with its target, and nothing is left over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := await self.left_over(image_, name)) is not None:
            self.invariants.check()
            if loop.time() - began > within:
                raise AssertionError(f"not settled within {within} s: {left}")
            await asyncio.sleep(max(1.0, (loop.time() - began) / 50))
        self.invariants.check()
        return await self.pool(name)

    async def left_over(self, image_: str | None, name: str = POOL) -> str | None:
        """Return what a pool lacks to be settled on an image."""
        pool, pods = await self.pool(name), await self.pods(name)
        if image_ is None:
            image_ = (
                pool.spec.image if pool.status.roll_phase == "Idle" else pool.status.target_image
            )
        status, names = pool.status, sorted(pod.name for pod in pods)
        accounts = sorted(
            each.name
            for each in await self.accounts()
            if each.metadata.labels[labels.RUNNER_POOL] == name
        )
        found = {
            "Pods": (len(pods), pool.spec.replicas),
            "images": ({image_of(pod) for pod in pods}, {image_} if pods else set()),
            "not Ready": ([pod.name for pod in pods if not (is_alive(pod) and is_ready(pod))], []),
            "ServiceAccounts": (accounts, names),
            "tickets": (status.draining, []),
            "pending": ([slot for slot in status.slots if slot.pending is not None], []),
            "active slots": (sum(slot.active for slot in status.slots), _with_slots(pods)),
            "marks": ([p.name for p in pods if labels.DRAIN_ELIGIBLE in p.metadata.labels], []),
            "readyReplicas": (status.ready_replicas, pool.spec.replicas),
            "staleReplicas": (status.stale_replicas, 0),
            "rollingReplicas": (status.rolling_replicas, 0),
            "targetImage": (status.target_image, image_),
            "lastGoodImage": (status.last_good_image, image_),
        }
        differing = (f"{what} {a}, not {b}" for what, (a, b) in found.items() if a != b)
        return next(differing, None)

    def jobs(self, *, per_hour: float, label: str = POOL, **settings: Any) -> JobSource:
        """Start a source of jobs."""
        assert self.dispatch is not None
        source = JobSource(
            self.dispatch,
            label,
            clock=virtual_time.clock(),
            per_hour=per_hour,
            seed=self.seed,
            **settings,
        )
        self.job_source = self.group.create_task(source.run())
        return source

    async def stop_jobs(self) -> None:
        """Queue no more jobs."""
        assert self.job_source is not None
        self.job_source.cancel()
        await asyncio.wait((self.job_source,))

    def cancel(self) -> None:
        """Cancel the controllers and the source of jobs."""
        for controller in self.controllers:
            controller.task.cancel()
        if self.job_source is not None:
            self.job_source.cancel()

    def metric(self, name: str, pool: str = POOL, **found: str) -> float | None:
        """Return a metric of a pool from the controller that was started last."""
        registry = self.controllers[-1].registry
        return registry.get_sample_value(name, {"pool": pool, **found})


def _with_slots(pods: list[Pod]) -> int:
    return sum(names.annotations.RUNNER_SLOT in pod.metadata.annotations for pod in pods)


async def _run(manager: Manager) -> None:
    # The process of a controller that lost its lease ends.
    with contextlib.suppress(errors.LeaseLost):
        await manager.run()


def _a_cluster(seed: int) -> AbstractAsyncContextManager[tuple[embedded.Api, Secret]]:
    return embedded.running(
        clock=virtual_time.clock(),
        seed=seed,
        settings=cluster_settings.api_settings(),
        controllers=True,
        timings=cluster_settings.timings(),
    )


@asynccontextmanager
async def _ready(hosts: ModelledHosts) -> AsyncIterator[None]:
    async with hosts.running():
        # Until the node controller has removed the taint of new Nodes.
        await asyncio.sleep(1)
        yield


@asynccontextmanager
async def a_world(
    settings: FleetSettings | None = None,
    images: Mapping[str, ImageModel] = IMAGES,
    *,
    seed: int = 0,
    dispatch: bool = True,
    has_signals: bool = False,
    sessions: signals.Sessions | None = None,
    guests: Guests | None = None,
) -> AsyncIterator[World]:
    """Run a cluster with modelled Macs, whose guests are the dispatch model's or the given ones; the controller is not started."""
    clock = virtual_time.clock()
    async with AsyncExitStack() as stack:
        api, token = await stack.enter_async_context(_a_cluster(seed))
        kube = await stack.enter_async_context(Client(api.transport(token), clock=clock))
        await kube.create_wire(CustomResourceDefinition.resource, _POOL_MANIFEST)
        model = DispatchModel(kube, clock=clock, seed=seed) if dispatch and not guests else None
        await stack.enter_async_context(model.running() if model else nullcontext())
        fleet = settings or FleetSettings(hosts=4, on_disk=(OLD,), seed=seed)
        hosts = ModelledHosts(kube, images, clock=clock, settings=fleet, guests=guests or model)
        await stack.enter_async_context(_ready(hosts))
        invariants = Invariants(api.store)
        async with asyncio.TaskGroup() as group:
            world = World(
                api=api,
                kube=kube,
                hosts=hosts,
                dispatch=model,
                invariants=invariants,
                checkpoints=Checkpoints(invariants.observe),
                group=group,
                token=token,
                has_dispatch=dispatch,
                seed=seed,
                has_signals=has_signals,
                sessions=sessions,
            )
            yield world
            invariants.check()
            world.cancel()
