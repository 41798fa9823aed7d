"""What the stories play on: a cluster of the suite's own, agents that can fall silent, and an ear for events.

Objects are read as the server writes them, so that a field which our own types leave out is compared too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, TypeVar

from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.core import Event, Namespace, Node, Pod, ServiceAccount
from bramley.api.meta import Object, ObjectMeta, Resource, micro_time
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from tests.contract.node_loss.timings import GRACE

T = TypeVar("T")
Wire = dict[str, Any]
NAMESPACE = "node-loss"
LEASES = "kube-node-lease"
ZONE = "topology.kubernetes.io/zone"
PATIENCE_SECONDS = 150
WELL = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}


class SeenPod(Object, frozen=True, kw_only=True):
    """A Pod with all its fields."""

    resource: ClassVar[Resource] = Pod.resource

    spec: Wire = {}
    status: Wire = {}


class SeenNode(Object, frozen=True, kw_only=True):
    """A Node with all its fields."""

    resource: ClassVar[Resource] = Node.resource

    spec: Wire = {}
    status: Wire = {}


class TooLate(Exception):
    """The machine was too busy to be heard from: a Node was lost that should not be, and so is the play."""


@dataclass(slots=True)
class Stage:
    """A cluster and what was heard on it; with kubectl where the cluster has an address."""

    kube: Client
    clock: Clock
    kubectl: tuple[str, ...] = ()
    agents: dict[str, Agent] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    # The longest time for which an agent was not heard that should have been, in seconds.
    latest: float = 0.0

    async def open(self) -> None:
        """Make the namespace, and wait until Pods may be made in it."""
        await self.kube.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))

        async def has_account() -> bool:
            try:
                await self.kube.get(ServiceAccount, "default", namespace=NAMESPACE)
            except errors.NotFound:
                return False
            return True

        await until(has_account)

    async def agent(self, name: str, **conditions: str) -> Agent:
        """Register a Node in a zone of its own, and keep it alive."""
        agent = Agent(self, name, self.clock.monotonic())
        body = {"metadata": {"name": name, "labels": {ZONE: name}}}
        await self.kube.create_wire(Node.resource, {"apiVersion": "v1", "kind": "Node", **body})
        spec = LeaseSpec(holder_identity=name, renew_time=micro_time(self.clock.now()))
        await self.kube.create(Lease(metadata=ObjectMeta(name=name, namespace=LEASES), spec=spec))
        self.agents[name] = agent
        await agent.post(**conditions)
        if not conditions:
            await self.tainted(name)
        return agent

    async def beat(self) -> NoReturn:
        """Be all agents."""
        while True:
            for agent in list(self.agents.values()):
                if agent.beating:
                    await agent.beat()
                    self.latest = max(self.latest, self.clock.monotonic() - agent.heard)
                    if self.latest > GRACE.total_seconds():
                        raise TooLate
                agent.heard = self.clock.monotonic()
            await asyncio.sleep(0.5)

    async def listen(self) -> NoReturn:
        """Keep all events, for a server forgets them soon."""
        while True:
            for namespace in (NAMESPACE, "default"):
                for each in (await self.kube.list(Event, namespace=namespace)).items:
                    text = f"{each.type} {each.reason} by {each.source.component}: {each.message}"
                    text += "" if each.involved_object.uid else ", of whom no uid is told"
                    self.told.setdefault(each.involved_object.name, set()).add(text)
            await asyncio.sleep(0.5)

    async def heard(self, name: str, what: str) -> None:
        """Wait until an event about the object says this."""

        async def is_heard() -> bool:
            return any(what in text for text in self.told.get(name, ()))

        await until(is_heard)

    async def pod(
        self,
        name: str,
        *,
        node: str = "",
        tolerations: Sequence[Wire] = (),
        status: Mapping[str, Any] | None = None,
        **metadata: Any,
    ) -> None:
        """Make a Pod that runs, or that has this status."""
        spec: Wire = {
            "containers": [{"name": "c", "image": "i"}],
            "automountServiceAccountToken": False,
            "tolerations": list(tolerations),
            # Those without a Node shall never have one.
            **({"nodeName": node} if node else {"schedulerName": "nobody"}),
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}}
        await self.kube.create_wire(Pod.resource, {**body, "spec": spec}, namespace=NAMESPACE)
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.kube.merge_patch(
            Pod,
            name,
            {"status": status if status is not None else running},
            namespace=NAMESPACE,
            subresource="status",
        )

    async def exists(self, name: str) -> bool:
        """Tell whether the Pod is there."""
        try:
            await self.see_pod(name)
        except errors.NotFound:
            return False
        return True

    async def see_pod(self, name: str) -> SeenPod:
        """Return the Pod as it is."""
        return await self.kube.get(SeenPod, name, namespace=NAMESPACE)

    async def see_node(self, name: str) -> SeenNode:
        """Return the Node as it is."""
        return await self.kube.get(SeenNode, name)

    async def tainted(self, name: str, *taints: str) -> None:
        """Wait until the Node has exactly these taints."""

        async def has() -> bool:
            return taints_of(await self.see_node(name)) == sorted(taints)

        await until(has)

    async def going(self, *names: str) -> None:
        """Wait until these Pods are told to go."""

        async def are_going() -> bool:
            return all([(await self.see_pod(name)).deleting for name in names])

        await until(are_going)

    async def end_of(self, name: str) -> SeenPod:
        """Wait until the Pod is gone, and return its last state."""
        listing = await self.kube.list(SeenPod, namespace=NAMESPACE)
        async with (
            asyncio.timeout(2 * PATIENCE_SECONDS),
            self.kube.watch(
                SeenPod, namespace=NAMESPACE, resource_version=listing.resource_version
            ) as watch,
        ):
            async for event in watch:
                if event.type == "DELETED" and event.object.name == name:
                    return event.object
        raise AssertionError(f"the watch ended before {name}")


@dataclass(slots=True)
class Agent:
    """The agent of a Node: it renews its Lease while it beats, and lets Pods go if it can."""

    stage: Stage
    node: str
    # When it was heard last, or was to be silent.
    heard: float
    beating: bool = True
    lets_go: bool = False

    async def post(self, **conditions: str) -> None:
        """Report the Node's conditions, well but for these."""
        now = f"{self.stage.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        told = [
            {
                "type": type,
                "status": status,
                "reason": "AsAsked",
                "message": "so be it",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for type, status in {**WELL, **conditions}.items()
        ]
        patch = {"status": {"conditions": told}}
        await self.stage.kube.merge_patch(Node, self.node, patch, subresource="status")

    async def beat(self) -> None:
        """Say that the Node is alive, and let go what is to go."""
        spec = {"renewTime": micro_time(self.stage.clock.now())}
        await self.stage.kube.merge_patch(Lease, self.node, {"spec": spec}, namespace=LEASES)
        if not self.lets_go:
            return
        for pod in (await self.stage.kube.list(Pod, namespace=NAMESPACE)).items:
            if pod.deleting and pod.spec.node_name == self.node:
                await self.stage.kube.delete(
                    Pod, pod.name, namespace=NAMESPACE, uid=pod.uid, grace=timedelta()
                )


async def until(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the answer is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (answer := await ask()):
            await asyncio.sleep(0.2)
    return answer


def taints_of(node: SeenNode) -> list[str]:
    """Return the Node's taints as kubectl writes them."""
    return sorted(f"{each['key']}:{each['effect']}" for each in node.spec.get("taints", ()))


def conditions_of(node: SeenNode) -> Wire:
    """Return what each condition of a Node says."""
    return {
        each["type"]: f"{each['status']} {each['reason']}: {each['message']}"
        for each in node.status.get("conditions", ())
    }


def summary(pod: SeenPod) -> Wire:
    """Return what became of a Pod: its phase, whether it goes, and its conditions but for their times."""
    conditions = {
        each["type"]: " ".join([each["status"], *(str(each[key]) for key in _TOLD if key in each)])
        for each in pod.status.get("conditions", ())
    }
    return {
        "phase": pod.status["phase"],
        "goes": pod.deleting,
        "grace": pod.metadata.deletion_grace_period_seconds,
        "counted": pod.status.get("observedGeneration"),
        **conditions,
    }


_TOLD = ("reason", "message", "observedGeneration")
