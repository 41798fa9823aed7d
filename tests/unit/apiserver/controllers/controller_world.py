"""The embedded API in memory with only the controllers that a test is about, in virtual time, and Nodes with or without heartbeats."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api import conditions
from bramley.api.coordination import Lease
from bramley.api.core import Event, Namespace, Node, Pod
from bramley.api.meta import ObjectMeta, Resource, micro_time
from bramley.apiserver.controllers.timings import DEFAULT, Timings
from bramley.app import embedded
from bramley.base import errors
from bramley.kube.client import Client
from bramley.runtime.manager import Manager, ManagerSettings
from tests import virtual_time

LEASES = "kube-node-lease"
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False
)
Add = Callable[..., None]


@dataclass(slots=True)
class World:
    """The API, a client of it, and which Nodes are alive."""

    kube: Client
    api: embedded.Api
    alive: set[str] = field(default_factory=set)

    async def node(
        self, name: str, *, ready: str = "True", alive: bool = True, **more: Any
    ) -> Node:
        """Register a Node as an agent does: object, status, and from now on its Lease."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **more}
        body["metadata"] = {"name": name, "labels": more.pop("labels", {})}
        offers = {"cpu": "4", "memory": "8Gi", "pods": "10", **more.get("offers", {})}
        body.pop("offers", None)
        body["spec"] = more.get("spec", {})
        await self.kube.create_wire(Node.resource, body)
        if alive:
            self.alive.add(name)
            await self.beat(name)
        return await self.status(name, ready=ready, offers=offers)

    async def status(
        self, name: str, *, ready: str = "True", offers: dict[str, str] | None = None
    ) -> Node:
        """Post a Node's status."""
        stamp = f"{virtual_time.clock().now():%Y-%m-%dT%H:%M:%SZ}"
        times = {"lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        facts = [{"type": "Ready", "status": ready, "reason": "KubeletReady", **times}]
        status: dict[str, Any] = {"conditions": facts}
        if offers is not None:
            status |= {"capacity": offers, "allocatable": offers}
        return await self.kube.merge_patch(Node, name, {"status": status}, subresource="status")

    async def beat(self, name: str) -> None:
        """Renew a Node's Lease."""
        spec = {"renewTime": micro_time(virtual_time.clock().now()), "holderIdentity": name}
        try:
            await self.kube.merge_patch(Lease, name, {"spec": spec}, namespace=LEASES)
        except errors.NotFound:
            lease = {"metadata": {"name": name}, "spec": spec}
            whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
            await self.kube.create_wire(Lease.resource, whole, namespace=LEASES)

    async def renew_leases(self) -> None:
        """Renew the Leases of the living Nodes for ever."""
        while True:
            await asyncio.sleep(10)
            for name in sorted(self.alive):
                await self.beat(name)

    async def pod(
        self, name: str, *, node: str = "", namespace: str = "default", **spec: Any
    ) -> Pod:
        """Create a Pod; `labels`, `requests` and fields of the spec by their names on the wire."""
        container = {"name": "c", "image": "i", "resources": {"requests": spec.pop("requests", {})}}
        metadata: dict[str, Any] = {"name": name, "labels": spec.pop("labels", {})}
        metadata |= spec.pop("metadata", {})
        if "priority" in spec:
            spec["priorityClassName"] = await self._class(spec["priority"], spec)
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [container], **spec, **({"nodeName": node} if node else {})},
        }
        await self.kube.create_wire(Pod.resource, body, namespace=namespace)
        return await self.kube.get(Pod, name, namespace=namespace)

    async def _class(self, value: int, spec: dict[str, Any]) -> str:
        """Make the class without which no Pod may have a priority; return its name."""
        name = f"priority-{value}"
        body: dict[str, Any] = {"metadata": {"name": name}, "value": value}
        if "preemptionPolicy" in spec:
            body["preemptionPolicy"] = spec["preemptionPolicy"]
        with suppress(errors.AlreadyExists):
            await self.kube.create_wire(PRIORITY_CLASSES, body)
        return name

    async def find(self, name: str, *, namespace: str = "default") -> Pod | None:
        """Return a Pod, or None."""
        try:
            return await self.kube.get(Pod, name, namespace=namespace)
        except errors.NotFound:
            return None

    async def ready(self, name: str) -> tuple[str, str]:
        """Return status and reason of a Node's Ready condition."""
        node = await self.kube.get(Node, name)
        found = conditions.find(node.status.conditions, "Ready")
        return (found.status, found.reason) if found else ("", "")

    async def taints(self, name: str) -> set[tuple[str, str]]:
        """Return keys and effects of a Node's taints, without the prefix that all share."""
        node = await self.kube.get(Node, name)
        return {
            (each.key.removeprefix("node.kubernetes.io/"), each.effect) for each in node.spec.taints
        }

    async def events(self, about: str) -> list[tuple[str, str]]:
        """Return reasons and messages of the events about an object."""
        found = await self.kube.list(Event)
        return [
            (each.reason, each.message)
            for each in found.items
            if each.involved_object.name == about
        ]

    def manager(self, *adds: Add, timings: Timings = DEFAULT) -> Manager:
        """Return a manager of these controllers."""
        clock = virtual_time.clock()
        manager = Manager(
            self.kube,
            clock=clock,
            rng=random.Random(0),
            registry=CollectorRegistry(),
            settings=ManagerSettings(tune_gc=False, drain=timedelta(seconds=1)),
        )
        for add in adds:
            add(manager, self.kube, clock=clock, timings=timings)
        return manager


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    """Run the API, and the heartbeats of Nodes."""
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
        asyncio.TaskGroup() as group,
    ):
        world = World(kube, api)
        with suppress(errors.AlreadyExists):
            await kube.create(Namespace(metadata=ObjectMeta(name=LEASES)))
        beats = group.create_task(world.renew_leases())
        yield world
        beats.cancel()


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[None]:
    """Run a manager, and stop it kindly at the end."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        await manager.leading.wait()
        yield
        manager.stop()
        await task


@asynccontextmanager
async def a_world_with(*adds: Add, timings: Timings = DEFAULT) -> AsyncIterator[World]:
    """Run the API with these controllers."""
    async with a_world() as world, running(world.manager(*adds, timings=timings)):
        yield world
