"""A Node whose agent is a process with a kubelet's endpoints, a Pod on it, and kubectl."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from bramley.access import identity
from bramley.access.kubeconfig import render
from bramley.agent.guest.folders import UserData
from bramley.agent.ledger import Ledger, LedgerUnavailable, VmRecord, VmState
from bramley.api.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from bramley.api.core import Namespace, Node, Pod, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.base import errors
from bramley.kube import config_loader
from bramley.kube.client import Client
from tests.programs import run_program
from tests.unit.access.embedded_api import a_node, bind_pod

AGENT = "tests.contract.kubelet.agent_process"
VM = "vm-of-the-test"
TIMEOUT_SECONDS = 180.0


@dataclass(frozen=True)
class Target:
    """A server: the administrator's kubeconfig, and the authority of its client certificates."""

    name: str
    kubeconfig: Path
    authority: Path
    kubectl: Path


@dataclass(frozen=True)
class Stage:
    target: Target
    kube: Client
    folder: Path
    namespace: str
    node: str
    port: int

    @property
    def log(self) -> Path:
        return self.folder / "logs" / f"{VM}.log"

    @property
    def guest_log(self) -> Path:
        return UserData(self.folder / "data").prepare(VM).status / "runner.log"

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_program(self.command(*arguments), timeout=TIMEOUT_SECONDS)

    def shown(self, *arguments: str) -> str:
        done = self.kubectl(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str) -> str:
        done = self.kubectl(*arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr.strip()

    def command(self, *arguments: str) -> list[str]:
        program = [str(self.target.kubectl), "--kubeconfig", str(self.target.kubeconfig)]
        return [*program, "--namespace", self.namespace, *arguments]

    @contextmanager
    def following(self, output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run kubectl with its output in a file until the context ends."""
        with (
            output.open("w") as file,
            subprocess.Popen(self.command("logs", "-f", *arguments), stdout=file) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    async def begin(self, name: str = "p", *, state: VmState = VmState.STARTED) -> Pod:
        """Bind a Pod to the Node, and write the record of its VM in this state."""
        await bind_pod(self.kube, name, self.node, namespace=self.namespace)
        pod = await self.kube.get(Pod, name, namespace=self.namespace)
        (self.folder / "pods.json").write_bytes(msgspec.json.encode([pod]))
        self.put(pod, state)
        return pod

    def put(self, pod: Pod, state: VmState) -> None:
        ledger = Ledger(self.folder / "ledger")
        record = VmRecord(
            vm=VM,
            namespace=self.namespace,
            pod=pod.name,
            uid=pod.uid,
            image="image",
            state=state,
            started_at=datetime.now(UTC),
        )
        try:
            ledger.put(record)
        except LedgerUnavailable:
            # The other process opened the ledger at this moment, and removed the draft as one of a crashed writer.
            ledger.put(record)


@asynccontextmanager
async def staged(target: Target, folder: Path) -> AsyncIterator[Stage]:
    mark = uuid.uuid4().hex[:6]
    namespace, node = f"kubelet-{mark}", f"mac-{mark}"
    async with config_loader.connect(target.kubeconfig) as kube:
        await kube.create(Namespace(metadata=ObjectMeta(name=namespace)))
        place = ObjectMeta(name="default", namespace=namespace)
        await _ensured(kube, ServiceAccount(metadata=place))
        made = await a_node(kube, node)
        found = await identity.create(kube, node, expires=timedelta(hours=1))
        access = config_loader.load(target.kubeconfig, environment={})
        written = render(node, found.token, server=access.server, trust=access.trust)
        (folder / "kubeconfig").write_text(written.reveal())
        (folder / "kubeconfig").chmod(0o600)
        (folder / "logs").mkdir()
        (folder / "pods.json").write_text("[]")
        await _wait_for_permission(folder / "kubeconfig")
        with running(target, node, folder) as port:
            await kube.merge_patch(Node, made.name, {"status": status(port)}, subresource="status")
            yield Stage(target, kube, folder, namespace, node, port)
        # A test may have stopped the server.
        with suppress(errors.BramleyError):
            await kube.delete(Node, node)


async def _wait_for_permission(kubeconfig: Path) -> None:
    """Wait until the agent may create reviews: a real server applies its role a moment later, and until then it refuses all clients."""
    about = ResourceAttributes(verb="get", version="v1", resource="nodes")
    review = SubjectAccessReview(
        spec=SubjectAccessReviewSpec(user="anna", resource_attributes=about)
    )
    async with config_loader.connect(kubeconfig) as agent, asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            with suppress(errors.Forbidden):
                await agent.create(review)
                return
            await asyncio.sleep(0.05)


async def _ensured(kube: Client, account: ServiceAccount) -> None:
    with suppress(errors.AlreadyExists):
        await kube.create(account)


def status(port: int) -> dict[str, object]:
    return {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "2"},
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "2"},
    }


@contextmanager
def running(target: Target, node: str, folder: Path) -> Iterator[int]:
    """Run the agent's endpoints; return their port."""
    command = [sys.executable, "-m", AGENT, node, str(folder), str(target.authority)]
    output = (folder / "stderr").open("w+")
    with output, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (folder / "stderr").read_text()
            yield int(line)
        finally:
            process.terminate()
            process.wait(timeout=TIMEOUT_SECONDS)


def until(path: Path, text: str) -> str:
    """Wait until a file holds a text, and return what it holds."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while text not in (found := path.read_text()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found
