"""The embedded API in memory under virtual time, with our CRDs installed and a small controller.

The controller keeps one ConfigMap per replica of a RunnerPool and deletes them with it: children, status and a finalizer,
without a Mac.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.api.names import labels
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.app import embedded
from bramley.base.secret import Secret
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube
from tests import virtual_time

NAMESPACE = "default"
BY_POOL = "pool"
FINALIZER = "scenario.bramley.dev/children"


@dataclass(frozen=True, slots=True)
class PoolReconciler:
    """The reconciler of pools: one ConfigMap per replica."""

    kube: FencedKube
    children: Cache[ConfigMap]

    async def reconcile(self, pool: RunnerPool) -> Outcome:
        if pool.metadata.deletion_timestamp is not None:
            return await self._release(pool)
        # Before the first child, so that no pool with children is gone before they are deleted.
        await self.kube.add_finalizer(pool, FINALIZER)
        observed = {child.name: child for child in self.children.by_index(BY_POOL, pool.name)}
        desired = [f"{pool.name}-{number}" for number in range(pool.spec.replicas)]
        for name in set(desired) - set(observed):
            await self.kube.create(a_child(pool, name))
        for name in set(observed) - set(desired):
            await self.kube.delete(observed[name])
        if pool.status.observed_replicas != len(desired):
            status = {"status": {"observedReplicas": len(desired)}}
            await self.kube.merge_patch(
                RunnerPool, pool.name, status, namespace=NAMESPACE, subresource="status"
            )
        return Settled()

    async def _release(self, pool: RunnerPool) -> Outcome:
        for child in self.children.by_index(BY_POOL, pool.name):
            await self.kube.delete(child)
        await self.kube.remove_finalizer(pool, FINALIZER)
        return Settled()


def a_child(pool: RunnerPool, name: str) -> ConfigMap:
    owner = OwnerReference(
        api_version=RunnerPool.resource.api_version,
        kind=RunnerPool.resource.kind,
        name=pool.name,
        uid=pool.uid,
        controller=True,
    )
    metadata = ObjectMeta(
        name=name,
        namespace=NAMESPACE,
        labels={labels.RUNNER_POOL: pool.name},
        owner_references=[owner],
    )
    return ConfigMap(metadata=metadata)


@dataclass(frozen=True, slots=True)
class World:
    """The API and a client of it."""

    api: embedded.Api
    kube: Client
    client: Callable[[], Client]
    # Of an administrator.
    token: Secret

    async def pool(self, name: str, *, replicas: int) -> RunnerPool:
        spec = RunnerPoolSpec(
            image="ghcr.io/example/runner:1",
            fleet_selector="demo",
            dispatch_label=name,
            runner_labels=["macOS"],
            replicas=replicas,
        )
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        return await self.kube.create(RunnerPool(metadata=metadata, spec=spec))

    async def scale(self, name: str, replicas: int) -> None:
        await self.kube.scale(RunnerPool, name, namespace=NAMESPACE, replicas=replicas)

    async def children(self, pool: str) -> list[str]:
        found = await self.kube.list(
            ConfigMap, namespace=NAMESPACE, labels={labels.RUNNER_POOL: pool}
        )
        return [child.name for child in found.items]

    def manager(self, identity: str = "") -> Manager:
        """Return a manager of the controller, elected if it has an identity."""
        election = LeaderElectionSettings(NAMESPACE, "shelf", identity) if identity else None
        manager = Manager(
            self.client(),
            clock=virtual_time.clock(),
            rng=random.Random(identity),
            registry=CollectorRegistry(),
            settings=ManagerSettings(election=election, tune_gc=False),
        )
        children = manager.informer(ConfigMap).cache
        children.index(BY_POOL, lambda child: [child.metadata.labels.get(labels.RUNNER_POOL)])
        shelf = PoolReconciler(manager.kube, children)
        manager.add(Controller(shelf).for_kind(RunnerPool).owns(ConfigMap))
        return manager


@asynccontextmanager
async def a_world(seed: int = 0) -> AsyncIterator[World]:
    """Run the embedded API in memory with our CRDs installed."""
    clock = virtual_time.clock()
    async with embedded.running(clock=clock, seed=seed) as (api, token):

        def client() -> Client:
            return Client(api.transport(token), clock=clock)

        async with client() as kube:
            for manifest in crds.manifests():
                await kube.create_wire(CustomResourceDefinition.resource, manifest)
            yield World(api, kube, client, token)


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[None]:
    """Run a manager, and stop it at the end."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        yield
        manager.stop()
        await task
