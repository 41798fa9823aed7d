"""One simulated Mac on our server, both as real processes; what tart itself would take is set to nothing, so that ours is left.

The folder is that of a `tools.kube` instance, whose watchdog ends server and agent if the benchmark is killed. VMs are in
sessions of their own and end by themselves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.apiserver.servers import Bramley, ProcessFolder, StartFailed
from bramley.access import identity, kubeconfig
from bramley.agent import vm_names
from bramley.agent.pods import status
from bramley.api import conditions
from bramley.api.core import Node, Pod
from bramley.api.names import conditions as names
from bramley.app import macs
from bramley.base import errors
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.sim.mac.folder import MacFolder
from tools.kube import processes
from tools.kube.processes import ProcessRecord

PATIENCE = 60.0
LOOK = 0.005
NAMESPACE = "default"
BRIEF, LONG = "ghcr.io/example/brief:1", "ghcr.io/example/long:1"
# Long enough for the agent to have said that the VM runs, and to be at rest again.
BRIEF_SECONDS = 2.5
# A VM must end some time, also if nobody is left to end it.
LONG_SECONDS = 900.0
NOTHING = ("query", "manifest", "clone", "set", "delete", "start", "halt", "stop")
SOON = {"address": 0.1, "agent": 0.1, "ready": 0.1}


def script() -> dict[str, Any]:
    """Return what the Mac is like: an image whose guests end soon, and one whose guests stay."""
    seconds = {BRIEF: BRIEF_SECONDS, LONG: LONG_SECONDS}
    size = {"size_bytes": 1_000_000_000, "compressed_bytes": 1_000_000}
    return {
        "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 3600},
        "timings": {**dict.fromkeys(NOTHING, 0.0), **SOON},
        "images": {name: {**size, "guest": {"work": work}} for name, work in seconds.items()},
    }


@dataclass(slots=True)
class Stage:
    """The Mac, its agent and the server's client."""

    process_folder: ProcessFolder
    mac: MacFolder
    kube: Client
    agent: ProcessRecord | None = None

    @property
    def pid(self) -> int:
        """Return the agent's process."""
        if self.agent is None:
            raise StartFailed("no agent was started")
        return self.agent.pid

    async def start(self) -> float:
        """Start the agent and return the seconds until its Node says that it is ready."""
        began, before = time.perf_counter(), await self.heard()
        # The Mac's environment is all that the agent gets, as from launchd.
        given = [f"{name}={value}" for name, value in self.mac.environment().items()]
        self.agent = self.process_folder.run("agent", ["env", "-i", *given, *macs.agent_command(self.mac)])

        async def is_ready() -> bool:
            heard = await self.heard()
            return heard is not None and heard != before

        await self.until(is_ready, what="a Node that is ready")
        return time.perf_counter() - began

    def stop(self) -> None:
        """Stop the agent; VMs go on."""
        if self.agent is not None:
            processes.stop([self.agent])

    async def heard(self) -> object:
        """Return which version of the Node says that it is ready; its times tell whole seconds, and a start takes less."""
        try:
            node = await self.kube.get(Node, self.mac.name)
        except errors.NotFound:
            return None
        ready = conditions.find(node.status.conditions, names.READY)
        return node.metadata.resource_version if ready and ready.status == "True" else None

    async def create(self, name: str, image: str) -> Pod:
        """Create a Pod that is bound from the first moment on."""
        spec = {
            "nodeName": self.mac.name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "runner", "image": image}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.kube.create_wire(Pod.resource, body, namespace=NAMESPACE)
        return await self.kube.get(Pod, name, namespace=NAMESPACE)

    async def has(self, name: str, holds: Callable[[Pod], object]) -> None:
        """Wait until something holds for a Pod."""

        async def look() -> bool:
            return bool(holds(await self.kube.get(Pod, name, namespace=NAMESPACE)))

        await self.until(look, what=f"Pod {name}", every=0.1)

    async def remove(self, name: str) -> None:
        """Delete a Pod and wait until it is gone."""
        await self.kube.delete(Pod, name, namespace=NAMESPACE)

        async def is_gone() -> bool:
            with suppress(errors.NotFound):
                await self.kube.get(Pod, name, namespace=NAMESPACE)
                return False
            return True

        await self.until(is_gone, what=f"the end of Pod {name}", every=0.1)

    def run_of(self, pod: Pod) -> Path:
        """Return the folder in which the supervisor of a Pod's VM writes things down."""
        vm = vm_names.of_pod(pod.namespace or "", pod.name, pod.uid)
        return self.mac.folders.state / "runs" / vm

    async def until(
        self, ask: Callable[[], Awaitable[bool]], *, what: str, every: float = LOOK
    ) -> None:
        """Wait for something; an agent that ended, or a wait in vain, is an error with its last words."""
        ends = time.monotonic() + PATIENCE
        while not await ask():
            lives = self.agent is None or processes.is_running(self.agent)
            if not lives or time.monotonic() > ends:
                told = processes.tail(self.agent.log) if self.agent else ""
                raise StartFailed(f"waited in vain for {what}:\n{told}")
            await asyncio.sleep(every)


@asynccontextmanager
async def staged(process_folder: ProcessFolder) -> AsyncIterator[Stage]:
    """Give a server and a Mac whose agent has not begun; nothing of it runs when the block has ended."""
    server = Bramley(process_folder, has_controllers=True)
    server.start()
    found = config_loader.load(process_folder.folder / "kubeconfig", environment={})
    mac = MacFolder(process_folder.folder / "mac-1")
    mac.root.mkdir()
    mac.lay_out(script())
    async with config_loader.connect(process_folder.folder / "kubeconfig", environment={}) as kube:
        made = await identity.create(kube, mac.name, expires=timedelta(hours=1))
        way_in = kubeconfig.render(mac.name, made.token, server=found.server, trust=found.trust)
        mac.kubeconfig.touch(mode=0o600)
        mac.kubeconfig.write_text(way_in.reveal())
        mac.authority.write_text(found.trust.authorities or "")
        stage = Stage(process_folder, mac, kube)
        try:
            yield stage
        finally:
            stage.stop()
            for pid in mac.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def is_running(pod: Pod) -> bool:
    """Tell whether a Pod's VM runs and has an address."""
    return pod.status.phase == status.RUNNING and bool(pod.status.pod_ip)
