"""A stub of the infrastructure provider and of the agents on its machines, for one namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.api.core import Node, NodeSpec, Pod
from bramley.api.meta import ObjectMeta
from bramley.api.names import finalizers, machines
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base import errors
from bramley.kube.client import Client

HEARTBEAT = timedelta(seconds=5)


@dataclass(slots=True)
class Provider:
    """Makes machines ready with a Node of the same name, ends the Pods of these Nodes, and releases deleted machines."""

    kube: Client
    namespace: str
    # While it is held, new machines do not become ready.
    provisioning: asyncio.Lock = field(default_factory=asyncio.Lock)
    _beaten: dict[str, float] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        """Return the names of all Nodes that were created."""
        return list(self._beaten)

    async def run(self) -> None:
        """Act until cancelled."""
        while True:
            found = await self.kube.list(ScalewayAppleSiliconMachine, namespace=self.namespace)
            for machine in found.items:
                with suppress(errors.NotFound, errors.Conflict, errors.AlreadyExists):
                    await self._act(machine)
            for pod in (await self.kube.list(Pod, namespace=self.namespace)).items:
                if pod.deleting:
                    with suppress(errors.NotFound):
                        await self._delete(pod)
            await asyncio.sleep(0.2)

    async def _act(self, machine: ScalewayAppleSiliconMachine) -> None:
        if machine.deleting:
            await self._patch(machine, {"metadata": {"finalizers": None}})
        elif finalizers.MACHINE not in machine.metadata.finalizers:
            await self._patch(machine, {"metadata": {"finalizers": [finalizers.MACHINE]}})
        elif not machine.status.ready and not self.provisioning.locked():
            await self._provision(machine)
        elif machine.status.ready:
            await self._beat(machine.name)

    async def _provision(self, machine: ScalewayAppleSiliconMachine) -> None:
        provider_id = machines.provider_id("fr-par-1", machine.uid)
        await self._patch(machine, {"spec": {"providerID": provider_id}})
        address = {"type": "ExternalIP", "address": "192.0.2.1"}
        await self._patch(machine, {"status": {"ready": True, "addresses": [address]}}, "status")
        spec = NodeSpec(provider_id=provider_id)
        await self.kube.create(Node(metadata=ObjectMeta(name=machine.name), spec=spec))
        await self._beat(machine.name)

    async def _beat(self, node: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._beaten.get(node, -60) < HEARTBEAT.total_seconds():
            return
        stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": stamp}
        patch = {"status": {"conditions": [ready]}}
        await self.kube.merge_patch(Node, node, patch, subresource="status")
        self._beaten[node] = now

    def _delete(self, pod: Pod) -> Awaitable[None]:
        return self.kube.delete(Pod, pod.name, namespace=self.namespace, grace=timedelta())

    async def _patch(
        self, machine: ScalewayAppleSiliconMachine, patch: dict[str, Any], part: str | None = None
    ) -> None:
        await self.kube.merge_patch(
            ScalewayAppleSiliconMachine,
            machine.name,
            patch,
            namespace=self.namespace,
            subresource=part,
        )
