"""The runtime on a real API server: what it writes is accepted, and what the server sends is understood."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from bramley.api.coordination import Lease
from bramley.api.core import ConfigMap, Event, Namespace
from bramley.api.meta import ObjectMeta
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube.client import Client
from bramley.kube.config_loader import connect
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller
from bramley.runtime.events import Recorder
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube
from tools.kube.control_plane import RealCluster

LEASE = "runtime"
FINALIZER = "test.bramley.dev/hold"
# The cluster creates a ConfigMap in every namespace, which does not have this label.
OURS = {"kept": "yes"}


@dataclass
class ConfigMapReconciler:
    """Records an event for each object and keeps a finalizer on it until it is deleted."""

    recorder: Recorder
    kube: FencedKube
    seen: dict[str, str] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)

    async def reconcile(self, obj: ConfigMap) -> Outcome:
        if obj.deleting:
            self.released.append(obj.name)
            await self.kube.remove_finalizer(obj, FINALIZER)
            return Settled()
        await self.kube.add_finalizer(obj, FINALIZER)
        self.seen[obj.name] = obj.data.get("value", "")
        self.recorder.event(obj, "Seen", "again", action="Observing")
        return Settled()


@dataclass
class Runtime:
    client: Client
    namespace: str
    manager: Manager
    reconciler: ConfigMapReconciler

    async def sees(self, value: str) -> None:
        await until(lambda: self.reconciler.seen.get("a") == value)


@asynccontextmanager
async def running(cluster: RealCluster) -> AsyncIterator[Runtime]:
    namespace = f"runtime-{uuid.uuid4().hex[:8]}"
    async with connect(cluster.kubeconfig) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        # No other process competes for the lease; a busy machine must not lose it between two renewals.
        election = LeaderElectionSettings(
            namespace,
            LEASE,
            "candidate",
            lease=timedelta(minutes=10),
            renew_deadline=timedelta(minutes=9),
        )
        manager = Manager(
            client,
            clock=SystemClock(),
            rng=random.Random(1),
            registry=CollectorRegistry(),
            settings=ManagerSettings(election=election, tune_gc=False),
        )
        reconciler = ConfigMapReconciler(manager.recorder("test", instance="here"), manager.kube)
        manager.add(Controller(reconciler).for_kind(ConfigMap, namespace=namespace, labels=OURS))
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            yield Runtime(client, namespace, manager, reconciler)
            manager.stop()
        await client.delete(Namespace, namespace)


async def until(holds: Callable[[], object], *, within: float = 180) -> None:
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.02)


def a_map(namespace: str, name: str) -> ConfigMap:
    metadata = ObjectMeta(name=name, namespace=namespace, labels=OURS)
    return ConfigMap(metadata=metadata, data={"value": "first"})


async def test_object_gets_a_finalizer_and_is_watched_until_its_release(
    real_cluster: RealCluster,
) -> None:
    async with running(real_cluster) as runtime:
        client, reconciler, namespace = runtime.client, runtime.reconciler, runtime.namespace
        await client.create(a_map(namespace, "a"))
        await runtime.sees("first")
        held = await client.get(ConfigMap, "a", namespace=namespace)
        assert held.metadata.finalizers == [FINALIZER]

        await client.merge_patch(ConfigMap, "a", {"data": {"value": "new"}}, namespace=namespace)
        await runtime.sees("new")
        await client.delete(ConfigMap, "a", namespace=namespace)
        # More than once if the cache did not show the last write yet.
        await until(lambda: set(reconciler.released) == {"a"})
        selection = Selection.of(namespace, labels=OURS)
        await until(lambda: not len(runtime.manager.informer(ConfigMap, selection).cache))


async def test_repeated_event_is_counted(real_cluster: RealCluster) -> None:
    async with running(real_cluster) as runtime:
        client, namespace = runtime.client, runtime.namespace
        obj = await client.create(a_map(namespace, "a"))
        await runtime.sees("first")
        for value in ("second", "third"):
            patch = {"data": {"value": value}}
            await client.merge_patch(ConfigMap, "a", patch, namespace=namespace)
            await runtime.sees(value)
        await runtime.reconciler.recorder.flush(timedelta(seconds=180))

        about = {"involvedObject.uid": obj.uid}
        [event] = (await client.list(Event, namespace=namespace, fields=about)).items
        assert event.count >= 3
        assert (event.reason, event.action, event.type) == ("Seen", "Observing", "Normal")
        await client.delete(ConfigMap, "a", namespace=namespace)
        await until(lambda: set(runtime.reconciler.released) == {"a"})


async def test_lease_is_acquired_renewed_and_released(real_cluster: RealCluster) -> None:
    async with running(real_cluster) as runtime:
        client, namespace = runtime.client, runtime.namespace
        async with asyncio.timeout(180):
            await runtime.manager.leading.wait()
        taken = await client.get(Lease, LEASE, namespace=namespace)
        assert (taken.spec.holder_identity, taken.spec.lease_transitions) == ("candidate", 1)
        assert runtime.manager.leadership is not None
        assert runtime.manager.leadership.epoch == 1

        renewed = taken
        async with asyncio.timeout(180):
            while renewed.spec.renew_time == taken.spec.renew_time:
                await asyncio.sleep(0.1)
                renewed = await client.get(Lease, LEASE, namespace=namespace)
        assert renewed.spec.acquire_time == taken.spec.acquire_time
        runtime.manager.stop()
        await until(lambda: not runtime.manager.leading.is_set())
        async with asyncio.timeout(180):
            while (await client.get(Lease, LEASE, namespace=namespace)).spec.holder_identity:
                await asyncio.sleep(0.05)

        with pytest.raises(errors.LeaseLost):
            runtime.manager.check()
