"""A server and `bramley runners` as real processes, with Nodes and Pods that are only objects: no agent runs.

Neither server runs the controllers of a cluster, so every write is that of the pool controller or of the benchmark.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.apiserver.servers import Bramley, Kubernetes, ProcessFolder, StartFailed, quiet
from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import Namespace, Node
from bramley.api.meta import ObjectMeta
from bramley.api.names import groups, labels, metrics
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request
from tools.kube import processes
from tools.kube.processes import ProcessRecord

TIMEOUT = 600.0
NAMESPACE = groups.RUNNERS_NAMESPACE
IMAGE = "ghcr.io/example/runner@sha256:" + "1" * 64
# What `bramley runners` logs when it reconciles.
STARTED = "Started pool controller"
CONCURRENT_CALLS = 16
_WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
_SERIES = re.compile(rf"^{metrics.API_REQUESTS.name}{{(.*)}} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(slots=True)
class Stage:
    """The processes and a client of the server."""

    process_folder: ProcessFolder
    transport: HttpTransport
    kube: Client
    controller: ProcessRecord | None = None
    starts: int = 0

    @property
    def pid(self) -> int:
        """Return the controller's process."""
        if self.controller is None:
            raise StartFailed("no controller was started")
        return self.controller.pid

    async def start_controller(self) -> None:
        """Start the controller, and wait until it reconciles."""
        command = [
            *(str(Path(sys.executable).parent / "bramley"), "runners"),
            *("--kubeconfig", str(self.process_folder.folder / "kubeconfig")),
            *("--namespace", NAMESPACE, "--leader-election-namespace", NAMESPACE),
            *("--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "off"),
            *("--dispatch-url", "http://127.0.0.1:9/dispatch"),
        ]
        name = f"runners-{self.starts}"
        self.starts += 1
        self.controller = self.process_folder.run(name, command, env=quiet())
        log = self.controller.log

        async def has_started() -> bool:
            return STARTED in processes.tail(log)

        await self.until(has_started, what="the controller")

    def stop_controller(self) -> None:
        """Stop the controller; it releases its lease."""
        if self.controller is not None:
            processes.stop([self.controller])

    async def create_nodes(self, fleet: str, count: int, *, pods: int) -> None:
        """Create the Nodes of a fleet, each with place for so many Pods."""
        names = [f"{fleet}-{number:03d}" for number in range(count)]
        await all_of(
            self.kube.create_wire(Node.resource, node_body(name, fleet, pods)) for name in names
        )

    async def create_pool(self, name: str, fleet: str, *, replicas: int) -> None:
        """Create a pool."""
        body = pool_body(name, fleet, replicas)
        await self.kube.create_wire(RunnerPool.resource, body, namespace=NAMESPACE)

    async def scale(self, pool: str, replicas: int) -> None:
        """Change the number of runners of a pool."""
        patch = {"spec": {"replicas": replicas}}
        await self.kube.merge_patch(RunnerPool, pool, patch, namespace=NAMESPACE)

    async def count(self, kind: type[Any]) -> int:
        """Return how many objects of a kind are in the namespace."""
        return len((await self.kube.list(kind, namespace=NAMESPACE)).items)

    async def until(
        self, check: Callable[[], Awaitable[bool]], *, what: str, every: float = 0.05
    ) -> None:
        """Poll until the check is true; StartFailed with the controller's last output if it has exited or is late."""
        deadline = time.monotonic() + TIMEOUT
        while not await check():
            is_alive = self.controller is None or processes.is_running(self.controller)
            if not is_alive or time.monotonic() > deadline:
                output = processes.tail(self.controller.log) if self.controller else ""
                raise StartFailed(f"timed out waiting for {what}:\n{output}")
            await asyncio.sleep(every)

    async def write_counts(self) -> dict[str, int]:
        """Return how many writes the server has answered, by resource."""
        response = await self.transport.send(Request("GET", "/metrics", accept="text/plain"))
        return writes_in(response.body.decode())


def writes_in(page: str) -> dict[str, int]:
    """Return the number of writes on a server's page of metrics, by resource."""
    counts: dict[str, int] = {}
    for found in _SERIES.finditer(page):
        series = dict(_LABEL.findall(found[1]))
        if series["verb"] in _WRITES:
            resource = series["resource"]
            counts[resource] = counts.get(resource, 0) + int(float(found[2]))
    return counts


async def all_of(calls: Iterable[Awaitable[object]]) -> None:
    """Await calls, a bounded number at a time."""
    semaphore = asyncio.Semaphore(CONCURRENT_CALLS)

    async def run(call: Awaitable[object]) -> None:
        async with semaphore:
            await call

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(run(call))


def node_body(name: str, fleet: str, pods: int) -> dict[str, Any]:
    """Return a Node that is Ready."""
    amounts = {"cpu": str(8 * pods), "memory": f"{16 * pods}Gi", "pods": str(pods)}
    node_labels = {
        labels.FLEET: fleet,
        labels.OS: labels.DARWIN,
        labels.RUNTIME: labels.RUNTIME_TART,
        labels.HOSTNAME: name,
        labels.golden(IMAGE): labels.TRUE,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": node_labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pool_body(name: str, fleet: str, replicas: int) -> dict[str, Any]:
    """Return a pool."""
    spec = {
        "image": IMAGE,
        "fleetSelector": fleet,
        "dispatchLabel": name,
        "runnerLabels": ["macOS"],
        "replicas": replicas,
    }
    resource = RunnerPool.resource
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def running_status(at: str) -> dict[str, Any]:
    """Return the status of a Pod whose VM runs and is Ready."""
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}],
        "containerStatuses": [
            {
                "name": "runner",
                "image": IMAGE,
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
            }
        ],
    }


def is_of_pool(pod: Pod, pool: str) -> bool:
    """Return whether a Pod belongs to a pool."""
    return pod.metadata.labels.get(labels.RUNNER_POOL) == pool


@asynccontextmanager
async def staged(
    process_folder: ProcessFolder, server: Bramley | Kubernetes
) -> AsyncIterator[Stage]:
    """Start a server and create what pools need; the controller is not started."""
    server.start()
    if isinstance(server, Kubernetes):
        process_folder.instance.write_kubeconfigs(server.ports.apiserver)
    config = config_loader.load(process_folder.folder / "kubeconfig", environment={})
    transport = HttpTransport(config)
    async with Client(transport) as kube:
        manifest = next(
            each
            for each in crds.manifests()
            if each["spec"]["names"]["kind"] == RunnerPool.resource.kind
        )
        await kube.create_wire(CustomResourceDefinition.resource, manifest)
        await kube.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        stage = Stage(process_folder, transport, kube)

        async def is_served() -> bool:
            try:
                await kube.list(RunnerPool, namespace=NAMESPACE)
            except errors.NotFound:
                return False
            return True

        await stage.until(is_served, what="the definition of pools")
        try:
            yield stage
        finally:
            stage.stop_controller()
