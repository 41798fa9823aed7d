"""One simulated Mac on our server, both as real processes; tart's own delays are zero, so that only ours are measured.

The folder is that of a `tools.kube` instance, whose watchdog stops server and agent if the benchmark is killed. VMs have their own
sessions and end by themselves.
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

TIMEOUT = 60.0
POLL_SECONDS = 0.005
NAMESPACE = "default"
BRIEF, LONG = "ghcr.io/example/brief:1", "ghcr.io/example/long:1"
# Long enough for the agent to publish that the VM runs, and to be idle again.
BRIEF_SECONDS = 2.5
# VMs end by themselves, even if the benchmark was killed.
LONG_SECONDS = 900.0
NO_DELAY = ("query", "manifest", "clone", "set", "delete", "start", "halt", "stop")
SHORT_DELAYS = {"address": 0.1, "agent": 0.1, "ready": 0.1}


def script() -> dict[str, Any]:
    """Return the script of the Mac: an image whose guests end soon, and one whose guests keep running."""
    seconds = {BRIEF: BRIEF_SECONDS, LONG: LONG_SECONDS}
    size = {"size_bytes": 1_000_000_000, "compressed_bytes": 1_000_000}
    return {
        "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 3600},
        "timings": {**dict.fromkeys(NO_DELAY, 0.0), **SHORT_DELAYS},
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
        """Start the agent and return the seconds until its Node is Ready."""
        started, before = time.perf_counter(), await self.ready_version()
        # The agent gets only the Mac's environment, as from launchd.
        environment = [f"{name}={value}" for name, value in self.mac.environment().items()]
        self.agent = self.process_folder.run(
            "agent", ["env", "-i", *environment, *macs.agent_command(self.mac)]
        )

        async def is_ready() -> bool:
            version = await self.ready_version()
            return version is not None and version != before

        await self.wait_for(is_ready, what="a Ready Node")
        return time.perf_counter() - started

    def stop(self) -> None:
        """Stop the agent; VMs keep running."""
        if self.agent is not None:
            processes.stop([self.agent])

    async def ready_version(self) -> object:
        """Return the resourceVersion of the Node if it is Ready; its timestamps in seconds are too coarse for a start."""
        try:
            node = await self.kube.get(Node, self.mac.name)
        except errors.NotFound:
            return None
        ready = conditions.find(node.status.conditions, names.READY)
        return node.metadata.resource_version if ready and ready.status == "True" else None

    async def create(self, name: str, image: str) -> Pod:
        """Create a Pod that is already bound."""
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

    async def wait_for_pod(self, name: str, predicate: Callable[[Pod], object]) -> None:
        """Wait until a predicate is true for a Pod."""

        async def check() -> bool:
            return bool(predicate(await self.kube.get(Pod, name, namespace=NAMESPACE)))

        await self.wait_for(check, what=f"Pod {name}", every=0.1)

    async def remove(self, name: str) -> None:
        """Delete a Pod and wait until it is gone."""
        await self.kube.delete(Pod, name, namespace=NAMESPACE)

        async def is_gone() -> bool:
            with suppress(errors.NotFound):
                await self.kube.get(Pod, name, namespace=NAMESPACE)
                return False
            return True

        await self.wait_for(is_gone, what=f"the deletion of Pod {name}", every=0.1)

    def run_folder(self, pod: Pod) -> Path:
        """Return the folder of the run of a Pod's VM."""
        vm = vm_names.of_pod(pod.namespace or "", pod.name, pod.uid)
        return self.mac.folders.state / "runs" / vm

    async def wait_for(
        self, check: Callable[[], Awaitable[bool]], *, what: str, every: float = POLL_SECONDS
    ) -> None:
        """Poll until the check is true; StartFailed with the agent's last output after a timeout or if it has exited."""
        deadline = time.monotonic() + TIMEOUT
        while not await check():
            is_alive = self.agent is None or processes.is_running(self.agent)
            if not is_alive or time.monotonic() > deadline:
                output = processes.tail(self.agent.log) if self.agent else ""
                raise StartFailed(f"timed out waiting for {what}:\n{output}")
            await asyncio.sleep(every)


@asynccontextmanager
async def staged(process_folder: ProcessFolder) -> AsyncIterator[Stage]:
    """Yield a server and a Mac whose agent is not started; all their processes are stopped at the end."""
    server = Bramley(process_folder, has_controllers=True)
    server.start()
    config = config_loader.load(process_folder.folder / "kubeconfig", environment={})
    mac = MacFolder(process_folder.folder / "mac-1")
    mac.root.mkdir()
    mac.lay_out(script())
    async with config_loader.connect(process_folder.folder / "kubeconfig", environment={}) as kube:
        made = await identity.create(kube, mac.name, expires=timedelta(hours=1))
        agent_kubeconfig = kubeconfig.render(
            mac.name, made.token, server=config.server, trust=config.trust
        )
        mac.kubeconfig.touch(mode=0o600)
        mac.kubeconfig.write_text(agent_kubeconfig.reveal())
        mac.authority.write_text(config.trust.authorities or "")
        stage = Stage(process_folder, mac, kube)
        try:
            yield stage
        finally:
            stage.stop()
            for pid in mac.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def is_running(pod: Pod) -> bool:
    """Return whether a Pod's VM runs and has an address."""
    return pod.status.phase == status.RUNNING and bool(pod.status.pod_ip)
