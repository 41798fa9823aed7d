"""A cluster, a simulated Mac and its agent in one process under virtual time; the agent may be killed at any checkpoint.

The agent is the real one, built as for a real process, and uses its own token with an agent's permissions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.access import identity
from bramley.agent.gc.collector import PERIOD
from bramley.agent.ledger import ImageRecord, Ledger, VmRecord
from bramley.agent.settings import VM_BOOT_TIMEOUT, NodeSettings, Settings
from bramley.agent.tart.driver import Deadlines
from bramley.api.core import Node, Pod
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.app import agent as agents
from bramley.app import embedded
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube.client import Client
from bramley.kube.transport import Transport
from bramley.sim.mac.agent_process import AgentProcess
from bramley.sim.mac.mac import SimulatedMac
from tests import virtual_time
from tests.scenarios.agent_life.invariants import Invariants

NODE = "mac-1"
NAMESPACE = "default"
IMAGE = "ghcr.io/example/runner@sha256:" + "1" * 64
TAGGED = "ghcr.io/example/runner:1"
USER = 501
POLL = 0.5
# A clone that a killed agent had begun may finish within tart's deadline; its record is kept for that long. What a clone that was
# killed has left is removed by the next command that is neither a clone nor a pull, such as those of the collector.
REST = max(Deadlines().clone, PERIOD) + timedelta(minutes=2)


@dataclass(slots=True)
class World:
    """All of it; `side` is the agent's process, None while there is none."""

    kube: Client
    mac: SimulatedMac
    clock: Clock
    rng: random.Random
    transport: Callable[[], Transport]
    group: asyncio.TaskGroup
    invariants: Invariants
    collects: bool = True
    boot_timeout: timedelta = VM_BOOT_TIMEOUT
    # Called at every point at which a crash would leave another state, for all agents.
    on_checkpoint: Callable[[str], None] | None = None
    side: AgentProcess | None = None
    agent: agents.Agent | None = None
    task: asyncio.Task[None] | None = None
    starts: int = 0
    registries: list[CollectorRegistry] = field(default_factory=list)

    def ensure_started(self) -> None:
        """Start the agent unless there is one."""
        if self.side is None:
            self.start()

    def start(self) -> None:
        """Start the agent, as launchd does."""
        side = self.side = self.mac.start_agent()
        side.on_checkpoint = self._on_checkpoint
        self.invariants.up_since = self.clock.now()
        registry = CollectorRegistry()
        deps = agents.AgentDeps(
            kube=Client(side.transport(self.transport()), clock=self.clock),
            programs=side.programs,
            runs=side.runs,
            host=side.host,
            # The Mac's own clock, which a test may set.
            clock=self.mac.clock,
            rng=random.Random(self.rng.random()),
            registry=registry,
            has_sockets=False,
            open_ledger=partial(_CheckpointLedger, side),
        )
        settings = Settings(
            node=NodeSettings(name=NODE, address="10.20.0.11"),
            folders=self.mac.folders,
            tart_binary="tart",
            gui_session_uid=USER,
            gc_enabled=self.collects,
            vm_boot_timeout=self.boot_timeout,
        )
        self.registries.append(registry)
        self.starts += 1
        self.agent = agents.Agent(settings, deps)
        self.task = self.group.create_task(self.agent.run())

    async def kill(self) -> None:
        """Kill the agent with -9, wherever it is."""
        if self.side is not None and self.task is not None:
            await self.side.reap(self.task)
        self.side = self.agent = self.task = None
        self.invariants.up_since = None

    async def reboot(self) -> None:
        """Reboot the Mac; its agent is not started."""
        await self.kill()
        self.mac.reboot()

    async def pod(self, name: str, **changes: Any) -> Pod:
        """Create a Pod that is bound to the Mac already."""
        wire = pod_wire(name, **changes)
        await self.kube.create_wire(Pod.resource, wire, namespace=NAMESPACE)
        return await self.kube.get(Pod, name, namespace=NAMESPACE)

    async def find(self, name: str) -> Pod | None:
        """Return a Pod, or None; directly from the store, because it is called very often."""
        pods = self.invariants.current().values()
        return next((pod for pod in pods if pod.name == name), None)

    async def delete(self, name: str, *, grace: timedelta | None = None) -> None:
        """Request a Pod's deletion; one that is gone is fine."""
        try:
            await self.kube.delete(Pod, name, namespace=NAMESPACE, grace=grace)
        except errors.NotFound:
            return

    async def until(
        self, predicate: Callable[[], Awaitable[bool]], *, within: timedelta, what: str
    ) -> None:
        """Wait until the predicate is true; raise if an invariant is violated meanwhile."""
        began, waited = self.clock.monotonic(), 0.0
        while not await predicate():
            self.invariants.check()
            if waited >= within.total_seconds():
                raise AssertionError(f"not within {within}: {what}")
            # Poll less often the longer it takes: each poll checks all invariants.
            await asyncio.sleep(max(POLL, waited / 20))
            waited = self.clock.monotonic() - began

    async def until_rest(self, *, within: timedelta = REST) -> None:
        """Wait until nothing is left of Pods that have ended or are gone."""

        async def is_at_rest() -> bool:
            # Programs that a killed agent has started still run, and may still create files.
            return not (self.invariants.left() or self.mac.table.living())

        await self.until(is_at_rest, within=within, what="nothing is left")
        self.invariants.check()

    def _on_checkpoint(self, checkpoint: str) -> None:
        self.invariants.observe()
        if self.on_checkpoint is not None:
            self.on_checkpoint(checkpoint)


class _CheckpointLedger(Ledger):
    """A ledger whose every write is a checkpoint of the agent; nothing is synced, because no power loss is simulated."""

    def __init__(self, side: AgentProcess, folder: Path) -> None:
        super().__init__(folder, durable=False)
        self._side = side

    def put(self, record: VmRecord) -> None:
        super().put(record)
        self._side.notify_checkpoint(f"after writing {record.state}")

    def drop(self, vm: str) -> None:
        super().drop(vm)
        self._side.notify_checkpoint("after dropping a record")

    def put_image(self, record: ImageRecord) -> None:
        super().put_image(record)
        self._side.notify_checkpoint("after writing an image")

    def drop_image(self, digest: str) -> None:
        super().drop_image(digest)
        self._side.notify_checkpoint("after dropping an image")


def pod_wire(
    name: str, *, image: str = IMAGE, spec: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the manifest of a Pod with the Node that a scheduler would add."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "containers": [{"name": "vm", "image": image}],
            "tolerations": [{"operator": "Exists"}],
            **(spec or {}),
        },
    }


@asynccontextmanager
async def a_world(root: Path, *, seed: int = 0, collects: bool = True) -> AsyncIterator[World]:
    """Create a world with an image in its registry and an agent that has not started."""
    clock = virtual_time.clock()
    rng = random.Random(seed)
    async with embedded.running(clock=clock, keys=SigningKeys.in_memory()) as (api, token):
        kube = Client(api.transport(token), clock=clock)
        secret = await _enrol(kube)
        async with asyncio.TaskGroup() as group:
            mac = SimulatedMac(root, clock=clock, rng=rng, group=group)
            mac.settings.image(TAGGED, digest=IMAGE.partition("@")[2], size_bytes=2_000_000_000)
            world = World(
                kube=kube,
                mac=mac,
                clock=clock,
                rng=rng,
                transport=lambda: api.transport(secret),
                group=group,
                invariants=Invariants(api.store, mac, NODE),
                collects=collects,
            )
            yield world
            await world.kill()
            mac.table.clear()


async def _enrol(kube: Client) -> Secret:
    issued = await identity.create(kube, NODE, expires=timedelta(days=1))
    return issued.token


async def is_ready(kube: Client) -> bool:
    """Return whether the Node exists and is Ready."""
    try:
        node = await kube.get(Node, NODE)
    except errors.NotFound:
        return False
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
