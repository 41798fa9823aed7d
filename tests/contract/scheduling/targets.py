"""The two schedulers under test: ours beside the embedded API, and the real kube-scheduler.

Nodes are ready objects without a kubelet, so Pods that are bound to them stay as they are.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from bramley.api import conditions
from bramley.api.core import Namespace, Node, Pod, ServiceAccount
from bramley.api.meta import Object, ObjectMeta, Resource
from bramley.apiserver.controllers.timings import Timings
from bramley.app import embedded
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport

Wire = dict[str, Any]
# The Nodes have no kubelet and send no heartbeats; with these periods they stay ready during a case.
LONG_GRACE_PERIODS = Timings(
    node_monitor_grace=timedelta(hours=1), node_startup_grace=timedelta(hours=1)
)
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "10", "ephemeral-storage": "10Gi"}
_POLL_SECONDS = 0.05


PRIORITY = Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)


class PriorityClass(Object, frozen=True, kw_only=True):
    """How important Pods are; only its name matters here."""

    resource: ClassVar[Resource] = PRIORITY


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a Pod: its Node, or why it has none."""

    node: str
    message: str


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster with a scheduler, and the case's own namespace."""

    kube: Client
    namespace: str

    async def node(self, given: Mapping[str, Any]) -> None:
        """Register a Node and wait until it is free to take Pods."""
        name, mine = given["name"], list(given.get("taints", []))
        labels = {"kubernetes.io/hostname": name, **given.get("labels", {})}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": mine, "unschedulable": given.get("unschedulable", False)},
        }
        await self.kube.create_wire(Node.resource, body)
        capacity = {**CAPACITY, **given.get("capacity", {})}
        stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        await self.kube.merge_patch(Node, name, {"status": status}, subresource="status")

        async def is_free() -> bool:
            node = await self.kube.get(Node, name)
            keys = {each.key for each in node.spec.taints}
            cordoned = "node.kubernetes.io/unschedulable" in keys or not node.spec.unschedulable
            return "node.kubernetes.io/not-ready" not in keys and cordoned

        await until(is_free)

    async def pod(self, name: str, given: Mapping[str, Any]) -> None:
        """Create a Pod, with its Node if it has one already."""
        special = {"name", "node", "phase", "labels", "requests", "limits", "init", "ports"}
        amounts = {key: given[key] for key in ("requests", "limits") if key in given}
        container: Wire = {"name": "c", "image": "i", "resources": amounts}
        container["ports"] = given.get("ports", [])
        spec: Wire = {key: value for key, value in given.items() if key not in special}
        spec |= {"containers": [container], "automountServiceAccountToken": False}
        if "init" in given:
            first = {"name": "i", "image": "i", "resources": {"requests": given["init"]}}
            spec["initContainers"] = [first]
        if "node" in given:
            spec["nodeName"] = given["node"]
        metadata = {"name": name, "labels": given.get("labels", {})}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await self.kube.create_wire(Pod.resource, body, namespace=self.namespace)
        if "phase" in given:
            status = {"status": {"phase": given["phase"]}}
            await self.kube.merge_patch(
                Pod, name, status, namespace=self.namespace, subresource="status"
            )

    async def verdict(self, name: str) -> Verdict:
        """Return the verdict in the Pod's current status."""
        pod = await self.kube.get(Pod, name, namespace=self.namespace)
        found = conditions.find(pod.status.conditions, "PodScheduled")
        message = found.message if found and found.status == "False" else ""
        return Verdict(pod.spec.node_name, message)

    @asynccontextmanager
    async def priority_class(self, value: int) -> AsyncIterator[str]:
        """Create a PriorityClass of this value and yield its name."""
        body = {
            "apiVersion": PRIORITY.api_version,
            "kind": PRIORITY.kind,
            "metadata": {"name": self.namespace},
            "value": value,
        }
        await self.kube.create_wire(PRIORITY, body)
        try:
            yield self.namespace
        finally:
            await self.kube.delete(PriorityClass, self.namespace)

    async def disruption_reason(self, name: str) -> str:
        """Return why the Pod is being deleted; an empty text if it is not."""
        pod = await self.kube.get(Pod, name, namespace=self.namespace)
        found = conditions.find(pod.status.conditions, "DisruptionTarget")
        return found.reason if found and pod.deleting else ""

    async def nominated(self, name: str) -> str:
        """Return the Node that is being freed for the Pod."""
        pod = await self.kube.get(Pod, name, namespace=self.namespace)
        return pod.status.nominated_node_name

    async def wait_for_scheduler(self) -> None:
        """Wait until the scheduler has handled a Pod that was created after all others, so that it has observed them.

        It watches Nodes and Pods separately, so its message has to count all Nodes, and no taint that was removed meanwhile.
        """
        nodes = (await self.kube.list(Node)).items
        counted = f"0/{len(nodes)} nodes" if nodes else "no nodes"
        tainted = sum(is_tainted(node) for node in nodes)

        async def has_observed_all() -> bool:
            message = await self._judged("late")
            expected = f" {tainted} node(s) had untolerated taint" if tainted else "taint"
            return message.startswith(counted) and (expected in message) == bool(tainted)

        await until(has_observed_all)

    async def _judged(self, name: str) -> str:
        """Return the message about a new Pod that fits nowhere, and delete the Pod."""
        await self.pod(name, {"nodeSelector": {"missing": "label"}})

        async def is_judged() -> bool:
            return bool((await self.verdict(name)).message)

        await until(is_judged)
        message = (await self.verdict(name)).message
        await force_delete(self.kube, await self.kube.get(Pod, name, namespace=self.namespace))
        return message

    async def clear(self) -> None:
        """Delete all Nodes, which belong to this suite only, and the case's Pods."""
        for pod in (await self.kube.list(Pod, namespace=self.namespace)).items:
            await force_delete(self.kube, pod)
        for node in (await self.kube.list(Node)).items:
            await force_delete(self.kube, node)


def is_tainted(node: Node) -> bool:
    """Return whether a scheduler avoids the Node because of a taint, and not because it is cordoned."""
    effects = {taint.effect for taint in node.spec.taints}
    return not node.spec.unschedulable and bool(effects & {"NoSchedule", "NoExecute"})


async def force_delete(kube: Client, obj: Pod | Node) -> None:
    """Delete an object without a grace period, if it still exists."""
    try:
        await kube.delete(type(obj), obj.name, namespace=obj.namespace, grace=timedelta())
    except errors.NotFound:
        return


async def until(condition: Any, *, seconds: float = 180) -> bool:
    """Wait until the condition holds or the time is up; return whether it holds."""
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def ours() -> AsyncIterator[Target]:
    """Run our API and controllers in memory."""
    clock = SystemClock()
    async with (
        embedded.running(clock=clock, controllers=True, timings=LONG_GRACE_PERIODS) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
        a_namespace(kube) as target,
    ):
        yield target


@asynccontextmanager
async def real(kubeconfig: Path) -> AsyncIterator[Target]:
    """Use a control plane that runs already."""
    transport = HttpTransport(config_loader.load(kubeconfig, environment={}))
    async with Client(transport) as kube, a_namespace(kube) as target:
        yield target


@asynccontextmanager
async def a_namespace(kube: Client) -> AsyncIterator[Target]:
    """Create the namespace of one case, and delete its Nodes and Pods at the end."""
    name = f"scheduling-{secrets.token_hex(3)}"
    await kube.create(Namespace(metadata=ObjectMeta(name=name)))
    target = Target(kube, name)

    async def has_account() -> bool:
        accounts = await kube.list(ServiceAccount, namespace=name)
        return any(each.name == "default" for each in accounts.items)

    # Pods are refused before that.
    await until(has_account)
    await target.clear()
    try:
        yield target
    finally:
        await target.clear()
        await kube.delete(Namespace, name)
