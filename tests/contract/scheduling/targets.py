"""The two schedulers that the suite asks: ours beside the embedded API, and the real kube-scheduler.

Nodes are plain objects that are ready; nobody runs on them, so Pods that are there stay as they are.
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
# Nobody runs on the Nodes, so they are never heard of again; they stay ready for as long as a case takes.
PATIENT = Timings(node_monitor_grace=timedelta(hours=1), node_startup_grace=timedelta(hours=1))
OFFERS = {"cpu": "4", "memory": "8Gi", "pods": "10", "ephemeral-storage": "10Gi"}
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
    """A cluster with a scheduler, and a namespace of the case's own."""

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
        offers = {**OFFERS, **given.get("offers", {})}
        stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        status = {"capacity": offers, "allocatable": offers, "conditions": [ready]}
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
        """Return what the Pod says about itself now."""
        pod = await self.kube.get(Pod, name, namespace=self.namespace)
        found = conditions.find(pod.status.conditions, "PodScheduled")
        message = found.message if found and found.status == "False" else ""
        return Verdict(pod.spec.node_name, message)

    @asynccontextmanager
    async def importance(self, value: int) -> AsyncIterator[str]:
        """Make a PriorityClass of this value, and give its name."""
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

    async def end(self, name: str) -> str:
        """Return why the Pod was told to go; nothing if it was not."""
        pod = await self.kube.get(Pod, name, namespace=self.namespace)
        found = conditions.find(pod.status.conditions, "DisruptionTarget")
        return found.reason if found and pod.deleting else ""

    async def nominated(self, name: str) -> str:
        """Return the Node that is being freed for the Pod."""
        pod = await self.kube.get(Pod, name, namespace=self.namespace)
        return pod.status.nominated_node_name

    async def seen(self) -> None:
        """Wait until the scheduler has judged a Pod that came after all others; what came before it knows by then.

        It hears of Nodes and of Pods apart, so the verdict has to count all Nodes, and no taint that was taken away meanwhile.
        """
        nodes = (await self.kube.list(Node)).items
        counted = f"0/{len(nodes)} nodes" if nodes else "no nodes"
        tainted = sum(is_tainted(node) for node in nodes)

        async def knows_all() -> bool:
            message = await self._judged("late")
            told = f" {tainted} node(s) had untolerated taint" if tainted else "taint"
            return message.startswith(counted) and (told in message) == bool(tainted)

        await until(knows_all)

    async def _judged(self, name: str) -> str:
        """Return the verdict on a new Pod that fits nowhere, and take it away again."""
        await self.pod(name, {"nodeSelector": {"nobody": "has-this"}})

        async def is_judged() -> bool:
            return bool((await self.verdict(name)).message)

        await until(is_judged)
        message = (await self.verdict(name)).message
        await gone(self.kube, await self.kube.get(Pod, name, namespace=self.namespace))
        return message

    async def clear(self) -> None:
        """Remove all Nodes, which are of this suite's cases only, and the case's Pods."""
        for pod in (await self.kube.list(Pod, namespace=self.namespace)).items:
            await gone(self.kube, pod)
        for node in (await self.kube.list(Node)).items:
            await gone(self.kube, node)


def is_tainted(node: Node) -> bool:
    """Tell whether a scheduler keeps off the Node because of a taint, and not because it is cordoned."""
    effects = {taint.effect for taint in node.spec.taints}
    return not node.spec.unschedulable and bool(effects & {"NoSchedule", "NoExecute"})


async def gone(kube: Client, thing: Pod | Node) -> None:
    """Delete without grace what may be gone already."""
    try:
        await kube.delete(type(thing), thing.name, namespace=thing.namespace, grace=timedelta())
    except errors.NotFound:
        return


async def until(ask: Any, *, seconds: float = 180) -> bool:
    """Ask until the answer is true, but not for ever; tell whether it was."""
    try:
        async with asyncio.timeout(seconds):
            while not await ask():
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def ours() -> AsyncIterator[Target]:
    """Run our API and controllers in memory."""
    clock = SystemClock()
    async with (
        embedded.running(clock=clock, controllers=True, timings=PATIENT) as (api, token),
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
    """Make room for one case, and leave no Node behind."""
    name = f"scheduling-{secrets.token_hex(3)}"
    await kube.create(Namespace(metadata=ObjectMeta(name=name)))
    target = Target(kube, name)

    async def has_account() -> bool:
        accounts = await kube.list(ServiceAccount, namespace=name)
        return any(each.name == "default" for each in accounts.items)

    # No Pod is taken before.
    await until(has_account)
    await target.clear()
    try:
        yield target
    finally:
        await target.clear()
        await kube.delete(Namespace, name)
