"""What the scenarios run on: a dedicated cluster, agents whose heartbeats can be stopped, and the recorded events.

Objects are read as the server writes them, so that fields which our own types leave out are compared too.
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
TIMEOUT_SECONDS = 150
HEALTHY = {
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
    """The machine was too busy for the heartbeats: a Node was lost that must not be, so the run is invalid."""


@dataclass(slots=True)
class Stage:
    """A cluster and the events recorded on it; with kubectl where the cluster has an address."""

    kube: Client
    clock: Clock
    kubectl: tuple[str, ...] = ()
    agents: dict[str, Agent] = field(default_factory=dict)
    events: dict[str, set[str]] = field(default_factory=dict)
    # The longest delay of a heartbeat, in seconds.
    max_delay: float = 0.0

    async def open(self) -> None:
        """Create the namespace, and wait until Pods can be created in it."""
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
            await self.has_taints(name)
        return agent

    async def send_heartbeats(self) -> NoReturn:
        """Send the heartbeats of all agents."""
        while True:
            for agent in list(self.agents.values()):
                if agent.beating:
                    await agent.beat()
                    self.max_delay = max(self.max_delay, self.clock.monotonic() - agent.last_beat)
                    if self.max_delay > GRACE.total_seconds():
                        raise TooLate
                agent.last_beat = self.clock.monotonic()
            await asyncio.sleep(0.5)

    async def record_events(self) -> NoReturn:
        """Record all events before the server expires them."""
        while True:
            for namespace in (NAMESPACE, "default"):
                for each in (await self.kube.list(Event, namespace=namespace)).items:
                    text = f"{each.type} {each.reason} by {each.source.component}: {each.message}"
                    text += "" if each.involved_object.uid else ", without a uid"
                    self.events.setdefault(each.involved_object.name, set()).add(text)
            await asyncio.sleep(0.5)

    async def has_event(self, name: str, text: str) -> None:
        """Wait until an event about the object contains this text."""

        async def is_recorded() -> bool:
            return any(text in event for event in self.events.get(name, ()))

        await until(is_recorded)

    async def pod(
        self,
        name: str,
        *,
        node: str = "",
        tolerations: Sequence[Wire] = (),
        status: Mapping[str, Any] | None = None,
        **metadata: Any,
    ) -> None:
        """Create a Pod that runs, or that has this status."""
        spec: Wire = {
            "containers": [{"name": "c", "image": "i"}],
            "automountServiceAccountToken": False,
            "tolerations": list(tolerations),
            # A scheduler that does not run: Pods without a Node never get one.
            **({"nodeName": node} if node else {"schedulerName": "none"}),
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
        """Return whether the Pod exists."""
        try:
            await self.get_pod(name)
        except errors.NotFound:
            return False
        return True

    async def get_pod(self, name: str) -> SeenPod:
        """Return the Pod with all its fields."""
        return await self.kube.get(SeenPod, name, namespace=NAMESPACE)

    async def get_node(self, name: str) -> SeenNode:
        """Return the Node with all its fields."""
        return await self.kube.get(SeenNode, name)

    async def has_taints(self, name: str, *taints: str) -> None:
        """Wait until the Node has exactly these taints."""

        async def has() -> bool:
            return taints_of(await self.get_node(name)) == sorted(taints)

        await until(has)

    async def are_deleting(self, *names: str) -> None:
        """Wait until these Pods have a deletion timestamp."""

        async def all_deleting() -> bool:
            return all([(await self.get_pod(name)).deleting for name in names])

        await until(all_deleting)

    async def end_of(self, name: str) -> SeenPod:
        """Wait until the Pod is gone, and return its last state."""
        listing = await self.kube.list(SeenPod, namespace=NAMESPACE)
        async with (
            asyncio.timeout(2 * TIMEOUT_SECONDS),
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
    """The agent of a Node: it renews its Lease while `beating`, and deletes terminating Pods if `finishes_pods`."""

    stage: Stage
    node: str
    # When it last sent a heartbeat, or was stopped.
    last_beat: float
    beating: bool = True
    finishes_pods: bool = False

    async def post(self, **conditions: str) -> None:
        """Publish the Node's conditions: healthy except for these."""
        now = f"{self.stage.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        reported = [
            {
                "type": type,
                "status": status,
                "reason": "SetByTest",
                "message": "set by the test",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for type, status in {**HEALTHY, **conditions}.items()
        ]
        patch = {"status": {"conditions": reported}}
        await self.stage.kube.merge_patch(Node, self.node, patch, subresource="status")

    async def beat(self) -> None:
        """Renew the Node's Lease, and finish the deletion of its Pods."""
        spec = {"renewTime": micro_time(self.stage.clock.now())}
        await self.stage.kube.merge_patch(Lease, self.node, {"spec": spec}, namespace=LEASES)
        if not self.finishes_pods:
            return
        for pod in (await self.stage.kube.list(Pod, namespace=NAMESPACE)).items:
            if pod.deleting and pod.spec.node_name == self.node:
                await self.stage.kube.delete(
                    Pod, pod.name, namespace=NAMESPACE, uid=pod.uid, grace=timedelta()
                )


async def until(check: Callable[[], Awaitable[T]]) -> T:
    """Wait until the check returns something true, and return that."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (result := await check()):
            await asyncio.sleep(0.2)
    return result


def taints_of(node: SeenNode) -> list[str]:
    """Return the Node's taints as kubectl writes them."""
    return sorted(f"{each['key']}:{each['effect']}" for each in node.spec.get("taints", ()))


def conditions_of(node: SeenNode) -> Wire:
    """Return status, reason and message of each condition of a Node."""
    return {
        each["type"]: f"{each['status']} {each['reason']}: {each['message']}"
        for each in node.status.get("conditions", ())
    }


def summary(pod: SeenPod) -> Wire:
    """Return the state of a Pod: its phase, whether it is being deleted, and its conditions without their times."""
    conditions = {
        each["type"]: " ".join(
            [each["status"], *(str(each[key]) for key in _COMPARED if key in each)]
        )
        for each in pod.status.get("conditions", ())
    }
    return {
        "phase": pod.status["phase"],
        "deleting": pod.deleting,
        "grace": pod.metadata.deletion_grace_period_seconds,
        "observedGeneration": pod.status.get("observedGeneration"),
        **conditions,
    }


_COMPARED = ("reason", "message", "observedGeneration")
