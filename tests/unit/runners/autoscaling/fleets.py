"""Pools and hosts on the embedded API, an autoscaler on them, and a dispatch server whose answers the test sets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api.core import Event, Node
from bramley.api.meta import ObjectMeta
from bramley.api.names import events, labels
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import AutoscalingStatus
from bramley.base import errors
from bramley.runners.autoscaling import reconciler
from bramley.runners.dispatch_client import RollSignals, ScalingSignals
from bramley.runtime.manager import Manager, ManagerSettings
from tests import virtual_time
from tests.scenarios.world import NAMESPACE, World, a_world, running

FLEET = "macs"


def signals(**given: int) -> ScalingSignals:
    values = {"claimed": 0, "queued": 0, "p95_concurrent_last_hour": 0}
    return ScalingSignals(**{**values, **given})


@dataclass(slots=True)
class FakeSignals:
    """Answers by pool, after a delay; a missing answer is an outage."""

    answers: dict[str, ScalingSignals] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    async def desired_replicas(self, pool: str) -> ScalingSignals:
        self.calls.append(pool)
        await asyncio.sleep(self.delays.get(pool, 0))
        if pool not in self.answers:
            raise errors.Unavailable("status 503")
        return self.answers[pool]

    async def roll_signals(self, pool: str, since: datetime) -> RollSignals | None:
        del pool, since
        return None


@dataclass(frozen=True, slots=True)
class FleetWorld:
    """The API, the fake dispatch server and the metrics of the autoscaler."""

    world: World
    signals: FakeSignals
    registry: CollectorRegistry

    async def pool(self, name: str, **given: Any) -> RunnerPool:
        """Create a pool that is autoscaled up to 20 runners with a cooldown of 300 s and no floor."""
        autoscaling = {"enabled": True, "maxReplicas": 20, "minWarmPoolFloor": 0}
        autoscaling |= given.pop("autoscaling", {})
        spec = {
            "image": "ghcr.io/example/runner:1",
            "fleetSelector": FLEET,
            "dispatchLabel": name,
            "runnerLabels": ["macOS"],
            "autoscaling": autoscaling,
        }
        body = {
            "apiVersion": RunnerPool.resource.api_version,
            "kind": RunnerPool.resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec | given,
        }
        await self.world.kube.create_wire(RunnerPool.resource, body, namespace=NAMESPACE)
        return await self.get(name)

    async def get(self, name: str) -> RunnerPool:
        return await self.world.kube.get(RunnerPool, name, namespace=NAMESPACE)

    async def patch(self, name: str, spec: dict[str, Any]) -> None:
        await self.world.kube.merge_patch(RunnerPool, name, {"spec": spec}, namespace=NAMESPACE)

    async def replicas(self, *names: str) -> list[int]:
        return [(await self.get(name)).spec.replicas for name in names]

    async def status(self, name: str) -> AutoscalingStatus:
        found = (await self.get(name)).status.autoscaling
        assert found is not None
        return found

    async def hosts(self, count: int, *, pods: int = 2) -> None:
        """Create Macs with room for this many Pods of the default size."""
        for number in range(count):
            await self.world.kube.create(a_node(f"mac-{number}"))
            await self.set_ready(f"mac-{number}", ready=True, pods=pods)

    async def set_ready(self, name: str, *, ready: bool, pods: int = 2) -> None:
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": f"{virtual_time.clock().now():%Y-%m-%dT%H:%M:%SZ}",
        }
        allocatable = {"pods": str(pods), "cpu": "64", "memory": "256Gi"}
        status = {"conditions": [condition], "allocatable": allocatable, "capacity": allocatable}
        await self.world.kube.merge_patch(Node, name, {"status": status}, subresource="status")

    async def events(self) -> list[str]:
        listed = await self.world.kube.list(Event, namespace=NAMESPACE)
        return [each.message for each in listed.items if each.reason == events.POOL_SCALED]

    def metric(self, name: str, pool: str) -> float | None:
        return self.registry.get_sample_value(f"tuist_runners_autoscaler_{name}", {"pool": pool})

    def manager(self) -> Manager:
        manager = Manager(
            self.world.client(),
            clock=virtual_time.clock(),
            rng=random.Random(0),
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False),
        )
        reconciler.add(
            manager,
            self.signals,
            namespace=NAMESPACE,
            clock=virtual_time.clock(),
            registry=self.registry,
        )
        return manager


def a_node(name: str) -> Node:
    found = {labels.OS: labels.DARWIN, labels.RUNTIME: labels.RUNTIME_TART, labels.FLEET: FLEET}
    return Node(metadata=ObjectMeta(name=name, labels=found))


@asynccontextmanager
async def a_fleet(hosts: int = 0) -> AsyncIterator[FleetWorld]:
    """Run the embedded API with some Macs of two slots each; the autoscaler does not run yet."""
    async with a_world() as world:
        fleet = FleetWorld(world, FakeSignals(), CollectorRegistry())
        await fleet.hosts(hosts)
        yield fleet


@asynccontextmanager
async def an_autoscaled_fleet(hosts: int = 0) -> AsyncIterator[FleetWorld]:
    """Run the embedded API with some Macs of two slots each and the autoscaler."""
    async with a_fleet(hosts) as fleet, running(fleet.manager()):
        yield fleet
