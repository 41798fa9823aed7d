"""The clusters under test: ours in process and over HTTP, and the real control plane; and a fake agent for a Node."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from bramley.api.core import ConfigMap, Namespace, Node, Pod
from bramley.api.meta import Object, ObjectMeta, OwnerReference
from bramley.app import embedded
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport

T = TypeVar("T")
Wire = dict[str, Any]
TIMEOUT_SECONDS = 180


@dataclass(frozen=True, slots=True)
class World:
    """A cluster, the test's own namespace, and a Node that only this test's Pods are bound to."""

    kube: Client
    namespace: str
    # While it is held, the agent does nothing.
    agent: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def node(self) -> str:
        """Return the name of the test's Node; Pods name it themselves, so no scheduler is needed."""
        return f"node-of-{self.namespace}"

    async def config_map(
        self, name: str, *owners: OwnerReference, finalizers: tuple[str, ...] = ()
    ) -> ConfigMap:
        """Create a ConfigMap with these owners."""
        meta = ObjectMeta(
            name=name,
            namespace=self.namespace,
            owner_references=list(owners),
            finalizers=list(finalizers),
        )
        return await self.kube.create(ConfigMap(metadata=meta))

    async def names(self) -> set[str]:
        """Return the ConfigMaps of the namespace, but for the one that every namespace has."""
        found = await self.kube.list(ConfigMap, namespace=self.namespace)
        return {each.name for each in found.items} - {"kube-root-ca.crt"}

    async def exists(self, kind: type[Object], name: str) -> bool:
        """Return whether an object exists."""
        place = self.namespace if kind.resource.namespaced else None
        try:
            await self.kube.get(kind, name, namespace=place)
        except errors.NotFound:
            return False
        return True

    async def release(self, name: str) -> None:
        """Remove all finalizers of a ConfigMap."""
        patch = {"metadata": {"finalizers": None}}
        await self.kube.merge_patch(ConfigMap, name, patch, namespace=self.namespace)

    async def pods(self) -> list[Pod]:
        """Return the Pods of the namespace."""
        return (await self.kube.list(Pod, namespace=self.namespace)).items

    async def run_pods(self) -> None:
        """Act as an agent: make Pods ready, and complete deletions."""
        while True:
            async with self.agent:
                for pod in await self.pods():
                    with suppress(errors.NotFound, errors.Conflict):
                        await self._run(pod)
            await asyncio.sleep(0.1)

    async def _run(self, pod: Pod) -> None:
        if pod.deleting:
            await self.kube.delete(Pod, pod.name, namespace=self.namespace, grace=timedelta())
        elif pod.status.phase != "Running":
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
            status = {"status": {"phase": "Running", "conditions": [ready]}}
            await self.kube.merge_patch(
                Pod, pod.name, status, namespace=self.namespace, subresource="status"
            )

    async def heartbeat(self) -> None:
        """Keep the Node ready, as an agent does."""
        while True:
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
            await self.kube.merge_patch(
                Node, self.node, {"status": {"conditions": [ready]}}, subresource="status"
            )
            await asyncio.sleep(5)


Open = Callable[[], Any]


@asynccontextmanager
async def in_process() -> AsyncIterator[Client]:
    """Run our cluster in memory."""
    clock = SystemClock()
    async with (
        embedded.running(clock=clock, controllers=True) as (api, token),
        Client(api.transport(token)) as client,
    ):
        yield client


@asynccontextmanager
async def behind(kubeconfig: Path) -> AsyncIterator[Client]:
    """Use a cluster that runs already."""
    async with Client(HttpTransport(config_loader.load(kubeconfig, environment={}))) as client:
        yield client


@asynccontextmanager
async def a_world(opening: Open) -> AsyncIterator[World]:
    """Create a namespace, a Node and its agent on the cluster, and delete them at the end."""
    async with opening() as kube:
        world = World(kube, f"behaviour-{secrets.token_hex(4)}")
        await kube.create(Namespace(metadata=ObjectMeta(name=world.namespace)))
        await kube.create(Node(metadata=ObjectMeta(name=world.node)))
        try:
            async with asyncio.TaskGroup() as group:
                agent = [group.create_task(each) for each in (world.run_pods(), world.heartbeat())]
                try:
                    yield world
                finally:
                    for task in agent:
                        task.cancel()
        finally:
            # Also after a failure: other tests use the cluster, too.
            for kind, name in ((Namespace, world.namespace), (Node, world.node)):
                with suppress(errors.NotFound):
                    await kube.delete(kind, name)


async def eventually(condition: Callable[[], Awaitable[T]]) -> T:
    """Wait until the condition returns a true value, and return it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (answer := await condition()):
            await asyncio.sleep(0.05)
    return answer


def owned_by(obj: Object, *, block: bool | None = None, uid: str = "") -> OwnerReference:
    """Return a reference to this owner."""
    return OwnerReference(
        api_version=obj.resource.api_version,
        kind=obj.resource.kind,
        name=obj.name,
        uid=uid or obj.uid,
        block_owner_deletion=block,
    )
