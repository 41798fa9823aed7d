"""Real processes around dispatch: replicas that are killed and started again, and a simulated GitHub."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec

from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import Namespace
from bramley.api.meta import ObjectMeta
from bramley.api.names import groups
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.base import errors
from bramley.github.http import HttpTransport
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response
from tests.postgres_server import PostgresServer
from tests.process.serving.processes import BRAMLEY, TIMEOUT_SECONDS, clean_environment

NAMESPACE = groups.RUNNERS_NAMESPACE
POOL = "macos"
LABEL = "tuist-macos"
IMAGE = "ghcr.io/example/runner:1"
REPOSITORIES = ("acme/app", "globex/app")
SECRET = "canary-webhook-secret-0123456789"
CRD = f"{RunnerPool.resource.plural}.{RunnerPool.resource.group}"


@dataclass(frozen=True, slots=True)
class Files:
    """The files that the flags of all processes name."""

    folder: Path
    kubeconfig: Path

    @property
    def key(self) -> Path:
        return self.folder / "app.pem"

    @property
    def secret(self) -> Path:
        return self.folder / "webhook-secret"

    @property
    def database_url(self) -> Path:
        return self.folder / "database-url"

    def write(self, database_url: str = "") -> None:
        self.secret.write_text(f"{SECRET}\n")
        self.database_url.write_text(f"{database_url}\n")

    def flags(self, github_url: str) -> list[str]:
        """Return the flags of a dispatch server, except those of its address and its database."""
        return [
            *("--kubeconfig", str(self.kubeconfig)),
            *("--github-api-url", github_url),
            *("--github-app-id", "1"),
            *("--github-private-key-file", str(self.key)),
            *("--webhook-secret-file", str(self.secret)),
        ]


@dataclass(slots=True)
class Replica:
    """A dispatch server on one port; `start` it again after a kill."""

    name: str
    port: int
    flags: list[str]
    log: Path
    kills: int = 0
    # Exit codes of processes that ended by themselves before they served, as without a database.
    failed_starts: list[int] = field(default_factory=list)
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start the process and wait until it answers; one that exits before that is started again, as by the kubelet."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await self._serves():
                await asyncio.sleep(0.05)

    async def _serves(self) -> bool:
        if self.process is None or self.process.returncode is not None:
            if self.process is not None:
                self.failed_starts.append(self.process.returncode or 0)
            self.process = await self._spawn()
        return await answers(self.port)

    async def _spawn(self) -> Process:
        with self.log.open("ab") as out:
            return await asyncio.create_subprocess_exec(
                BRAMLEY,
                "dispatch",
                *("--listen", f"127.0.0.1:{self.port}"),
                # Of a repeated flag the last value counts.
                *("--metrics-bind-address", "off", "--health-probe-bind-address", "off"),
                *self.flags,
                stdout=out,
                stderr=out,
                env=clean_environment(),
            )

    async def kill(self) -> None:
        """Kill the process with SIGKILL; it must have run."""
        assert self.process is not None
        assert self.process.returncode is None, f"{self.name} ended by itself: {self.tail()}"
        self.process.kill()
        await self.process.wait()
        self.process = None
        self.kills += 1

    async def stop(self) -> int:
        """Stop the process with SIGTERM and return its exit code."""
        if self.process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.process.wait()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


async def answers(port: int) -> bool:
    """Return whether a server accepts connections on this port."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@asynccontextmanager
async def a_github(files: Files, webhook_url: str) -> AsyncIterator[tuple[HttpTransport, str]]:
    """Run a simulated GitHub that sends webhooks to this URL; yield a transport to it and its own URL."""
    flags = ["--private-key-file", str(files.key), "--listen", "127.0.0.1:0"]
    flags += [flag for each in REPOSITORIES for flag in ("--repository", each)]
    if webhook_url:
        flags += ["--webhook-url", webhook_url, "--webhook-secret-file", str(files.secret)]
    process = await asyncio.create_subprocess_exec(BRAMLEY, "sim", "github", *flags, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        async with HttpTransport(found[0]) as transport:
            yield transport, found[0]
    finally:
        process.kill()
        await process.wait()


async def call(
    transport: HttpTransport,
    path: str,
    body: object = None,
    *,
    deadline: timedelta = timedelta(seconds=30),
) -> Response:
    """Call the simulated GitHub: GET, or POST with a body."""
    content = None if body is None else msgspec.json.encode(body)
    method = "GET" if body is None else "POST"
    return await transport.send(Request(method, path, body=content, deadline=deadline))


async def create_pool(kube: Client) -> None:
    """Create the namespace, the definition of pools and a pool without replicas of its own."""
    manifest = next(each for each in crds.manifests() if each["metadata"]["name"] == CRD)
    await kube.create_wire(CustomResourceDefinition.resource, manifest)
    await kube.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await _lists_pools(kube):
            await asyncio.sleep(0.05)
    spec = RunnerPoolSpec(
        image=IMAGE,
        fleet_selector="demo",
        dispatch_label=LABEL,
        runner_labels=["self-hosted", "macOS", "ARM64"],
        replicas=0,
    )
    await kube.create(RunnerPool(metadata=ObjectMeta(name=POOL, namespace=NAMESPACE), spec=spec))


async def _lists_pools(kube: Client) -> bool:
    try:
        await kube.list(RunnerPool, namespace=NAMESPACE)
    except errors.NotFound:
        return False
    return True


def kill_postgres(server: PostgresServer) -> None:
    """Kill every process of PostgreSQL with SIGKILL; elsewhere than on Linux as its own crash handling does."""
    if sys.platform != "linux":
        server.kill()
        return
    parent = server.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    # Stopped first, so that it neither starts another child nor handles the end of one.
    for pid, number in (
        (parent, signal.SIGSTOP),
        *((int(child), signal.SIGKILL) for child in children),
        (parent, signal.SIGKILL),
    ):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    server.process.wait(TIMEOUT_SECONDS)
