"""A fleet of modelled Macs: their Nodes, and the parts of their agents that the API shows.

All hosts share one watch of Pods and one of Nodes. The Nodes have no heartbeat: an embedded cluster needs the settings of
`cluster_settings`, whose grace period never ends, so that a host at rest costs nothing. Events of Pods are not recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from bramley.agent.node.status import TAINT
from bramley.api import conditions
from bramley.api.core import (
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
)
from bramley.api.meta import ConditionStatus, ObjectMeta, to_wire
from bramley.api.names import agent, finalizers, labels
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from bramley.sim.fleet.images import HostImages, ImageModel
from bramley.sim.fleet.pod_writer import PodWriter
from bramley.sim.fleet.staging import HostStaging, StagingSettings
from bramley.sim.fleet.uplink import Uplink
from bramley.sim.fleet.vms import Guests, ModelledVm, VmSettings

_ADDRESSES_PER_BLOCK = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The hosts of a fleet; rates and sizes are in bytes."""

    hosts: int = 3
    fleet: str = "demo"
    prefix: str = "mac-"
    pods: int = 1
    cpu: str = "8"
    memory: str = "14336Mi"
    uplink_bytes_per_second: float = math.inf
    host_bytes_per_second: float = math.inf
    disk_bytes: float = math.inf
    # Images that every host has from the beginning.
    on_disk: tuple[str, ...] = ()
    seed: int = 0
    staging: StagingSettings = field(default_factory=StagingSettings)
    vms: VmSettings = field(default_factory=VmSettings)

    def names(self) -> list[str]:
        """Return the names of the Nodes."""
        width = len(str(self.hosts))
        return [f"{self.prefix}{number:0{width}d}" for number in range(1, self.hosts + 1)]


@dataclass(slots=True, eq=False)
class ModelledHost:
    """One Mac: its images, its staging and its VMs by the uid of their Pods."""

    name: str
    address: str
    images: HostImages
    staging: HostStaging
    vms: dict[str, ModelledVm] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    is_alive: bool = True
    # The uids of Pods that a crash of the host has ended.
    crashed: set[str] = field(default_factory=set)

    def secrets(self) -> set[str]:
        """Return the pull secrets that the Pods on the host refer to."""
        return {each.name for vm in self.vms.values() for each in vm.pod.spec.image_pull_secrets}

    def notify(self) -> None:
        """Notify staging and VMs of the host that its images have changed."""
        self.staging.notify()
        for vm in self.vms.values():
            vm.notify()


@dataclass(slots=True, eq=False)
class ModelledHosts:
    """The hosts of one fleet; `run` until cancelled, or use `running`."""

    kube: Client
    images: Mapping[str, ImageModel]
    _: KW_ONLY
    clock: Clock
    settings: FleetSettings = field(default_factory=FleetSettings)
    guests: Guests | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    uplink: Uplink = field(init=False)
    hosts: dict[str, ModelledHost] = field(default_factory=dict)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _pods: Informer[Pod] = field(init=False)
    _nodes: Informer[Node] = field(init=False)

    def __post_init__(self) -> None:
        self.uplink = Uplink(self.settings.uplink_bytes_per_second)
        for number, name in enumerate(self.settings.names()):
            self.hosts[name] = self._new_host(name, number)
        rng, metrics = random.Random(self.settings.seed), RuntimeMetrics(CollectorRegistry())
        self._pods = Informer(Pod, self.kube, clock=self.clock, rng=rng, metrics=metrics)
        self._nodes = Informer(Node, self.kube, clock=self.clock, rng=rng, metrics=metrics)
        self._pods.on_change(self._on_pod)
        self._nodes.on_change(self._on_node)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the hosts while the context lasts, once their Nodes are registered."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.run())
            await self.ready.wait()
            yield
            task.cancel()

    async def run(self) -> None:
        """Register the Nodes and run the hosts until cancelled."""
        async with self._group as group:
            for host in self.hosts.values():
                await self._register(host)
                self._start_staging(host)
            group.create_task(self._nodes.run())
            group.create_task(self._pods.run())
            await self._nodes.synced.wait()
            await self._pods.synced.wait()
            self.ready.set()

    async def kill_host(self, name: str) -> None:
        """Stop a host: nothing on it reports any more, and the API shows what it shows after missing heartbeats."""
        host = self.hosts[name]
        host.is_alive = False
        host.crashed |= host.vms.keys()
        tasks = list(host.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        host.images.abort_pulls()
        await self._set_ready(name, "Unknown")
        for pod in self._pods_of(name):
            await self._mark_not_ready(pod)

    async def revive_host(self, name: str) -> None:
        """Start a stopped host again; the Pods that ran on it fail, because their VMs do not run any more."""
        host = self.hosts[name]
        host.is_alive = True
        await self._set_ready(name, "True")
        self._start_staging(host)
        for pod in self._pods_of(name):
            self._start_vm(host, pod)

    def stall(self, name: str, *, is_stalled: bool = True) -> None:
        """Suspend the pulls of a host, or resume them."""
        self.hosts[name].images.stall(is_stalled=is_stalled)

    def fill_disk(self, name: str) -> None:
        """Leave no room on a host's disk for another image."""
        self.hosts[name].images.fill_disk()

    def unready(self, pod: str, *, is_ready: bool = False) -> None:
        """Set whether the guest of a Pod responds to the agent."""
        for host in self.hosts.values():
            for vm in host.vms.values():
                if vm.pod.name == pod:
                    vm.set_responsive(is_responsive=is_ready)

    def _new_host(self, name: str, number: int) -> ModelledHost:
        settings = self.settings
        images = HostImages(
            self.images,
            self.uplink,
            disk_bytes=settings.disk_bytes,
            bytes_per_second=settings.host_bytes_per_second,
            on_disk=dict.fromkeys(settings.on_disk),
        )
        staging = HostStaging(name, self.kube, images=images, settings=settings.staging)
        block, last = divmod(number, _ADDRESSES_PER_BLOCK)
        host = ModelledHost(name, f"10.0.{block}.{last + 1}", images, staging)
        images.on_change = host.notify
        staging.secrets = host.secrets
        return host

    async def _register(self, host: ModelledHost) -> None:
        wire = _new_node(host, self.settings, self._ready_condition("True"))
        try:
            await self.kube.create_wire(Node.resource, wire)
        except errors.AlreadyExists:
            await self._set_ready(host.name, "True")

    def _ready_condition(self, value: ConditionStatus) -> NodeCondition:
        now = self.clock.now().replace(microsecond=0)
        return NodeCondition(
            type="Ready",
            status=value,
            reason=agent.NODE_READY if value == "True" else "NodeStatusUnknown",
            last_heartbeat_time=now,
            last_transition_time=now,
        )

    async def _set_ready(self, name: str, value: ConditionStatus) -> None:
        node = await self.kube.get(Node, name)
        after = conditions.put(
            node.status.conditions, self._ready_condition(value), now=self.clock.now()
        )
        patch = {"status": {"conditions": msgspec.to_builtins(after)}}
        await self.kube.merge_patch(Node, name, patch, subresource="status")

    def _pods_of(self, node: str) -> list[Pod]:
        return [pod for pod in self._pods.cache.all() if pod.spec.node_name == node]

    async def _mark_not_ready(self, pod: Pod) -> None:
        """Do what the node controller does to the Pods of a Node whose heartbeats are missing."""
        ready = conditions.find(pod.status.conditions, "Ready")
        if ready is None or ready.status != "True":
            return
        condition = msgspec.structs.replace(ready, status="False")
        after = conditions.put(pod.status.conditions, condition, now=self.clock.now())
        patch = {"status": {"conditions": msgspec.to_builtins(after)}}
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self.kube.merge_patch(
                Pod,
                pod.name,
                patch,
                namespace=pod.namespace,
                subresource="status",
                uid=pod.uid,
            )

    def _start_staging(self, host: ModelledHost) -> None:
        self._start_task(host, "staging", host.staging.run())

    def _start_task(self, host: ModelledHost, name: str, coroutine: Any) -> None:
        task = host.tasks[name] = self._group.create_task(coroutine)
        task.add_done_callback(lambda ended: _forget(host, name, ended))

    def _on_node(self, key: Key, _old: Node | None, new: Node | None) -> None:
        host = self.hosts.get(key.name)
        if host is not None and new is not None:
            host.staging.observe(new)

    def _on_pod(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        host = self.hosts.get(pod.spec.node_name) if pod is not None else None
        if host is None or pod is None or not host.is_alive:
            return
        vm = host.vms.get(pod.uid)
        if new is None:
            if vm is not None:
                host.tasks[pod.uid].cancel()
        elif vm is not None:
            vm.observe(new)
        else:
            self._start_vm(host, new)

    def _start_vm(self, host: ModelledHost, pod: Pod) -> None:
        is_released = finalizers.VM_CLEANUP not in pod.metadata.finalizers and not pod.deleting
        if is_released and pod.status.phase in {"Succeeded", "Failed"}:
            return
        vm = host.vms[pod.uid] = ModelledVm(
            PodWriter(pod, self.kube),
            images=host.images,
            clock=self.clock,
            # By the Pod, so that its boot takes equally long in whatever order the Pods of a run start.
            rng=random.Random(f"{self.settings.seed}/{pod.name}"),
            ip=f"192.168.64.{2 + len(host.vms) % _ADDRESSES_PER_BLOCK}",
            host_ip=host.address,
            guests=self.guests,
            settings=self.settings.vms,
            was_rebooted=pod.uid in host.crashed,
        )
        self._start_task(host, pod.uid, vm.run())


def _forget(host: ModelledHost, name: str, ended: asyncio.Task[None]) -> None:
    # A host that was started again may have a new task of this name.
    if host.tasks.get(name) is ended:
        del host.tasks[name]
        host.vms.pop(name, None)


def _new_node(host: ModelledHost, settings: FleetSettings, ready: NodeCondition) -> dict[str, Any]:
    golden = {labels.golden(image): labels.TRUE for image in host.images.on_disk}
    amounts = {"pods": str(settings.pods), "cpu": settings.cpu, "memory": settings.memory}
    metadata = ObjectMeta(
        name=host.name,
        labels={
            labels.OS: labels.DARWIN,
            labels.ARCH: labels.ARM64,
            labels.HOSTNAME: host.name,
            labels.RUNTIME: labels.RUNTIME_TART,
            labels.FLEET: settings.fleet,
            **golden,
        },
    )
    status = NodeStatus(
        capacity=dict(amounts),
        allocatable=dict(amounts),
        conditions=[ready],
        addresses=[NodeAddress(type="InternalIP", address=host.address)],
        node_info=NodeSystemInfo(
            kubelet_version=agent.KUBELET_VERSION,
            container_runtime_version=agent.RUNTIME_VERSION,
            operating_system=labels.DARWIN,
            architecture=labels.ARM64,
        ),
    )
    node = Node(metadata=metadata, spec=NodeSpec(taints=[TAINT]), status=status)
    return to_wire(node)
