"""Twelve simulated Macs with real agents, one namespace and one pool on a control plane; nothing of them is left afterwards."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from bramley.access import identity, kubeconfig
from bramley.api import conditions, crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import Namespace, Node
from bramley.api.meta import ObjectMeta
from bramley.api.names import flags, labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.app import macs
from bramley.base import errors
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.sim.mac.folder import MacFolder
from tests.process.agent_life.servers import Server

TIMEOUT_SECONDS = 240.0
POOL = "macos"
OLD, NEW = (f"ghcr.io/example/macos-runner@sha256:{digit * 64}" for digit in "12")
MACS = 12
CRD = f"{RunnerPool.resource.plural}.{RunnerPool.resource.group}"
# Longer than a test; yet VMs end by themselves if the test was killed.
UNTIL_DELETED_SECONDS = 900.0
SHORT = dict.fromkeys(("manifest", "clone", "delete", "start", "halt", "stop"), 0.02)
TIMINGS = {
    **SHORT,
    "query": 0.0,
    "set": 0.0,
    "address": 0.1,
    "agent": 0.1,
    "ready": 0.2,
    "poll": 1.0,
}


def settings(work_seconds: float) -> dict[str, Any]:
    """Return the settings of the simulated tart: two small images whose jobs take this long."""
    facts = {
        "size_bytes": 1_000_000_000,
        "compressed_bytes": 1_000_000,
        "guest": {"work": work_seconds, "lines": ["the job runs"]},
    }
    return {
        "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
        "timings": TIMINGS,
        "images": {OLD: facts, NEW: facts},
    }


@dataclass(slots=True)
class RunnerFleet:
    """The Macs, the processes of their agents, and the pool."""

    kube: Client
    server: Server
    namespace: str
    macs: list[MacFolder]
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the fleet label of the Nodes."""
        return self.namespace

    def start_agents(self) -> None:
        """Start all agents, as launchd does."""
        for mac in self.macs:
            more = [flags.NODE_LABELS.name, f"{labels.FLEET}={self.name}"]
            with mac.log.open("ab") as out:
                self.agents.append(
                    subprocess.Popen(
                        [*macs.agent_command(mac), *more],
                        env=mac.environment(),
                        stdout=out,
                        stderr=out,
                    )
                )

    async def create_pool(self) -> None:
        """Create a pool with a runner per Mac, of which a roll may change two at once."""
        spec = {
            "image": OLD,
            "fleetSelector": self.name,
            "dispatchLabel": "macos",
            "runnerLabels": ["macOS"],
            "replicas": MACS,
            "podCPUMilli": 4000,
            "podMemoryMB": 4096,
            "rollout": {
                "maxConcurrentPercent": 17,
                # As many pulls at once as there are Macs: the agents report only every 10 s.
                "staging": {"maxConcurrent": MACS},
                # How long a simulated VM takes to boot depends on what else this machine does.
                "gate": {"bootSlowdownPercent": 0},
            },
        }
        resource = RunnerPool.resource
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": POOL},
            "spec": spec,
        }
        await self.kube.create_wire(resource, body, namespace=self.namespace)

    async def pool(self) -> RunnerPool:
        """Return the pool as it is now."""
        return await self.kube.get(RunnerPool, POOL, namespace=self.namespace)

    async def roll_to(self, image: str) -> None:
        """Change the image of the pool, as its owner does."""
        await self.kube.merge_patch(
            RunnerPool, POOL, {"spec": {"image": image}}, namespace=self.namespace
        )

    async def until(
        self,
        holds: Callable[[RunnerPool], object],
        *,
        what: str,
        seconds: float = TIMEOUT_SECONDS,
    ) -> RunnerPool:
        """Wait until the predicate is true for the pool."""
        deadline = time.monotonic() + seconds
        while not holds(pool := await self.pool()):
            self.expect_alive()
            assert time.monotonic() < deadline, f"timed out waiting for {what}: {pool.status}"
            await asyncio.sleep(0.1)
        return pool

    def expect_alive(self) -> None:
        """Check that all agents run."""
        for mac, agent in zip(self.macs, self.agents, strict=True):
            assert agent.poll() is None, mac.log.read_text(errors="replace")[-2000:]

    async def until_nodes_are_ready(self) -> None:
        """Wait until every Mac has a Node that is Ready."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while sum(map(_is_ready, await self._nodes())) < MACS:
            self.expect_alive()
            assert time.monotonic() < deadline, "timed out waiting for the Nodes"
            await asyncio.sleep(0.2)

    async def _nodes(self) -> list[Node]:
        return (await self.kube.list(Node, labels=f"{labels.FLEET}={self.name}")).items

    def stop(self) -> None:
        """Kill all processes of the Macs."""
        for agent in self.agents:
            agent.kill()
            agent.wait(TIMEOUT_SECONDS)
        for mac in self.macs:
            while found := mac.processes():
                for pid in found:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)


def _is_ready(node: Node) -> bool:
    return conditions.is_true(node.status.conditions, "Ready")


@asynccontextmanager
async def a_fleet(server: Server, folder: Path, *, work: float) -> AsyncIterator[RunnerFleet]:
    """Run the agents of a new fleet, and remove everything of it from the server at the end."""
    mark = secrets.token_hex(3)
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(
            config_loader.connect(server.kubeconfig, environment={})
        )
        await stack.enter_async_context(_served(kube))
        names = [f"mac-{mark}-{number:02d}" for number in range(1, MACS + 1)]
        fleet = RunnerFleet(
            kube, server, f"runners-{mark}", [MacFolder(folder / name) for name in names]
        )
        stack.push_async_callback(_clean_up, fleet)
        await kube.create(Namespace(metadata=ObjectMeta(name=fleet.namespace)))
        async with asyncio.TaskGroup() as group:
            for mac in fleet.macs:
                group.create_task(_prepare(fleet, mac, settings(work)))
        try:
            fleet.start_agents()
            await fleet.until_nodes_are_ready()
            yield fleet
        finally:
            fleet.stop()


async def _prepare(fleet: RunnerFleet, mac: MacFolder, content: dict[str, Any]) -> None:
    mac.root.mkdir()
    mac.lay_out(content)
    mac.authority.write_text(fleet.server.authority.read_text())
    access = config_loader.load(fleet.server.kubeconfig, environment={})
    made = await identity.create(fleet.kube, mac.name, expires=timedelta(hours=1))
    written = kubeconfig.render(mac.name, made.token, server=access.server, trust=access.trust)
    mac.kubeconfig.touch(mode=0o600)
    mac.kubeconfig.write_text(written.reveal())


@asynccontextmanager
async def _served(kube: Client) -> AsyncIterator[None]:
    """Install the definition of pools; one that was not there before is removed at the end."""
    manifest = next(each for each in crds.manifests() if each["metadata"]["name"] == CRD)
    try:
        await kube.create_wire(CustomResourceDefinition.resource, manifest)
        is_new = True
    except errors.AlreadyExists:
        is_new = False
    await _until_is(True, lambda: kube.list(RunnerPool))
    try:
        yield
    finally:
        if is_new:
            await kube.delete(CustomResourceDefinition, CRD)
            # The next test would find a definition that is about to go.
            await _until_is(False, lambda: kube.get(CustomResourceDefinition, CRD))


async def _until_is(expected: bool, read: Callable[[], Awaitable[object]]) -> None:
    """Wait until what is read exists, or does not."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while await _exists(read) != expected:
        assert time.monotonic() < deadline, "timed out waiting for the definition of pools"
        await asyncio.sleep(0.1)


async def _exists(read: Callable[[], Awaitable[object]]) -> bool:
    try:
        await read()
    except errors.NotFound:
        return False
    return True


async def _clean_up(fleet: RunnerFleet) -> None:
    """Delete everything of the fleet from the server, which other tests use too."""
    kube, namespace = fleet.kube, fleet.namespace
    without = {"metadata": {"finalizers": None}}
    for kind in (RunnerPool, Pod):
        for each in (await kube.list(kind, namespace=namespace)).items:
            with suppress(errors.NotFound):
                await kube.merge_patch(kind, each.name, without, namespace=namespace)
                await kube.delete(kind, each.name, namespace=namespace, grace=timedelta())
    for mac in fleet.macs:
        await identity.revoke(kube, mac.name)
        with suppress(errors.NotFound):
            await kube.delete(Node, mac.name)
    with suppress(errors.NotFound, errors.Conflict):
        await kube.delete(Namespace, namespace)
