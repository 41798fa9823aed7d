"""A simulated Mac with a real agent on a real server: its Pods, its processes, and what is left of both at the end."""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bramley.access import identity, kubeconfig
from bramley.agent import vm_names
from bramley.agent.ledger import Ledger
from bramley.api import conditions
from bramley.api.coordination import Lease
from bramley.api.core import Namespace, Node, Pod, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import agent, flags, groups, labels
from bramley.app import macs
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.tls import Trust
from bramley.sim.mac.folder import MacFolder
from bramley.sim.mac.settings_file import SettingsFile
from tests.process.agent_life.call_recorder import NUMBER_VARIABLE, CallRecorder, OnCrashPoint
from tests.process.agent_life.servers import Server

TIMEOUT_SECONDS = 180.0
IMAGE = "ghcr.io/example/macos-runner"
CODE = 3
# Real processes with short delays.
SCRIPT: Mapping[str, Any] = {
    "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
    "timings": {
        "query": 0.0,
        "manifest": 0.02,
        "clone": 0.05,
        "set": 0.0,
        "delete": 0.02,
        "start": 0.05,
        "address": 0.1,
        "agent": 0.15,
        "ready": 0.2,
        "halt": 0.05,
        "stop": 0.05,
    },
}
# Writes its exit code and then runs until it is shut down: so a test, not the clock, ends a VM.
GUEST: Mapping[str, Any] = {
    "work": 0.0,
    "code": CODE,
    "lines": ["the guest is at work"],
    "then": "stay",
}


def pod_body(name: str, node: str, *, image: str, grace: int = 30) -> dict[str, Any]:
    """Return a Pod for the scheduler to bind; its guest gets a token."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": True,
            "nodeSelector": {labels.OS: labels.DARWIN, labels.HOSTNAME: node},
            "tolerations": [{"key": labels.MACOS_TAINT, "operator": "Exists"}],
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "runner", "image": image}],
        },
    }


@dataclass(slots=True)
class Stage:
    """One Mac, the namespace of its Pods, and the agent that runs now."""

    server: Server
    kube: Client
    namespace: str
    mac: MacFolder
    script: SettingsFile
    token: Secret
    more: tuple[str, ...] = ()
    recorder: CallRecorder | None = None
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    began: float = 0.0
    is_over: bool = False
    _known: dict[str, str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """Return the name of the Node."""
        return self.mac.name

    def command(self) -> list[str]:
        """Return the command line of the agent."""
        return [*macs.agent_command(self.mac), *self.more]

    def start(self) -> None:
        """Start an agent, as launchd does."""
        self.starts += 1
        self.began = time.monotonic()
        self.write_kubeconfig()
        environment = {**self.mac.environment(), NUMBER_VARIABLE: str(self.starts)}
        with self.mac.log.open("ab") as out:
            self.process = subprocess.Popen(self.command(), env=environment, stdout=out, stderr=out)

    def write_kubeconfig(self) -> None:
        """Write the kubeconfig of the next agent; with a recorder, its address names the agent."""
        access = config_loader.load(self.server.kubeconfig, environment={})
        server, trust = access.server, access.trust
        if self.recorder is not None:
            server, trust = f"{self.recorder.address}/{self.starts}", Trust()
        written = kubeconfig.render(self.node, self.token, server=server, trust=trust)
        self.mac.kubeconfig.touch(mode=0o600)
        self.mac.kubeconfig.write_text(written.reveal())

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End the agent and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)

    def image(self, tag: str, **script: Any) -> str:
        """Add an image to the registry, with the behaviour of its guests."""
        name = f"{IMAGE}:{tag}"
        self.script.image(
            name,
            size_bytes=1_000_000_000,
            compressed_bytes=1_000_000,
            guest=copy.deepcopy({**GUEST, **script}),
        )
        return name

    async def create(self, name: str, *, image: str, grace: int = 30) -> None:
        """Create a Pod."""
        body = pod_body(name, self.node, image=image, grace=grace)
        made = await self.kube.create_wire(Pod.resource, body, namespace=self.namespace)
        self._known[name] = made["metadata"]["uid"]

    async def find(self, name: str) -> Pod | None:
        """Return a Pod as it is now, None if it is gone."""
        with suppress(errors.NotFound):
            pod = await self.kube.get(Pod, name, namespace=self.namespace)
            self._known[name] = pod.uid
            return pod
        return None

    async def has(self, name: str, holds: Callable[[Pod], object]) -> Pod:
        """Wait until the predicate holds for a Pod, which must exist."""

        async def matching() -> Pod | None:
            pod = await self.find(name)
            assert pod is not None, f"{name} is gone"
            return pod if holds(pod) else None

        found: Pod = await self.until(matching, what=f"Pod {name}")
        return found

    async def gone(self, name: str) -> None:
        """Wait until a Pod is gone."""

        async def is_gone() -> bool:
            return await self.find(name) is None

        await self.until(is_gone, what=f"the end of Pod {name}")

    async def has_sent_heartbeat(self) -> None:
        """Wait until the running agent has published a Ready heartbeat."""
        began = datetime.now(UTC).replace(microsecond=0)

        async def is_ready() -> bool:
            with suppress(errors.NotFound):
                node = await self.kube.get(Node, self.node)
                ready = conditions.find(node.status.conditions, "Ready")
                heartbeat = ready and ready.last_heartbeat_time
                return bool(ready and ready.status == "True" and heartbeat and heartbeat >= began)
            return False

        await self.until(is_ready, what="a Node that is ready")

    async def unregister(self) -> None:
        """Delete the agent's Node and Lease; it has to create them again."""
        with suppress(errors.NotFound):
            await self.kube.delete(Node, self.node)
        with suppress(errors.NotFound):
            await self.kube.delete(Lease, self.node, namespace=groups.NODE_LEASE_NAMESPACE)

    async def until(self, check: Callable[[], Awaitable[Any]], *, what: str) -> Any:
        """Wait until the check returns something true; the timeout begins again with each agent that is started meanwhile."""
        began = time.monotonic()
        while not (result := await check()):
            self.expect_alive()
            is_late = time.monotonic() > max(began, self.began) + TIMEOUT_SECONDS
            assert not is_late, f"timed out waiting for {what}:\n{self.log_tail()}"
            await asyncio.sleep(0.05)
        return result

    def expect_alive(self) -> None:
        """Check that an agent that exited was stopped by us."""
        if self.process is not None and (code := self.process.poll()) is not None:
            assert code in {0, -signal.SIGKILL}, f"the agent ended with {code}: {self.log_tail()}"

    def log_tail(self) -> str:
        """Return the end of the agents' log."""
        return "\n".join(self.mac.log.read_text(errors="replace").splitlines()[-40:])

    def vm(self, name: str) -> str:
        """Return the name of the VM of the Pod that was last seen under this name."""
        return vm_names.of_pod(self.namespace, name, self._known[name])

    async def halt(self, name: str) -> None:
        """End a guest from within."""
        await self.tart("exec", self.vm(name), "shutdown", "-h", "now")

    async def tart(self, *words: str) -> str:
        """Call this Mac's tart, as a person there would."""
        argv = [str(self.mac.programs / "tart"), *words]
        process = await asyncio.create_subprocess_exec(
            *argv, env=self.mac.environment(), stdout=subprocess.PIPE
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            stdout, _ = await process.communicate()
        return stdout.decode()

    def left(self) -> list[str]:
        """Return what is left of deleted Pods: nothing, once an agent has cleaned up."""
        folders = self.mac.folders
        ledger = Ledger(folders.ledger)
        found = {
            "VM": [
                each
                for each in _names(folders.tart_home / "vms")
                if not each.startswith(agent.GOLDEN_VM_PREFIX)
            ],
            "user data": _names(folders.user_data),
            "record": list(ledger.vms()),
            "unreadable record": [each.name for each in ledger.unreadable()],
            "run": _names(folders.state / "runs"),
            "process": [str(pid) for pid in self.mac.vms()],
            "unfinished work": _names(folders.tart_home / "tmp"),
        }
        return [f"{kind} {name}" for kind, names in found.items() for name in names]


def _names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


@asynccontextmanager
async def staged(
    server: Server, folder: Path, *more: str, on_crash_point: OnCrashPoint | None = None
) -> AsyncIterator[Stage]:
    """Start the agent of a new Mac; with `on_crash_point`, its commands and writes are recorded and reported there."""
    mark = secrets.token_hex(3)
    access = config_loader.load(server.kubeconfig, environment={})
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(
            config_loader.connect(server.kubeconfig, environment={})
        )
        mac = MacFolder(folder / f"mac-{mark}")
        mac.root.mkdir()
        script = mac.lay_out(copy.deepcopy(dict(SCRIPT)))
        mac.authority.write_text(server.authority.read_text())
        found = await identity.create(kube, mac.name, expires=timedelta(hours=1))
        stage = Stage(server, kube, f"life-{mark}", mac, script, found.token, more)
        stack.push_async_callback(_clean_up, stage)
        await _make_namespace(kube, stage.namespace)
        if on_crash_point is not None:
            stage.recorder = CallRecorder(
                access, lambda *about: not stage.is_over and on_crash_point(*about)
            )
            await stack.enter_async_context(stage.recorder.recording(mac))
        stack.enter_context(_ended(stage))
        stage.start()
        yield stage


async def _make_namespace(kube: Client, name: str) -> None:
    await kube.create(Namespace(metadata=ObjectMeta(name=name)))
    metadata = ObjectMeta(name="default", namespace=name)
    # Pods need it, and the controller that creates it may be late.
    with suppress(errors.AlreadyExists):
        await kube.create(ServiceAccount(metadata=metadata))


@contextmanager
def _ended(stage: Stage) -> Iterator[None]:
    """Kill all processes of the Mac at the end."""
    try:
        yield
    finally:
        stage.is_over = True
        if stage.process is not None and stage.process.poll() is None:
            stage.end()
        for pid in stage.mac.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def _clean_up(stage: Stage) -> None:
    """Delete everything of the stage from the server, which other tests use too."""
    kube = stage.kube
    for pod in (await kube.list(Pod, namespace=stage.namespace)).items:
        with suppress(errors.NotFound):
            body = {"metadata": {"finalizers": None}}
            await kube.merge_patch(Pod, pod.name, body, namespace=stage.namespace)
            await kube.delete(Pod, pod.name, namespace=stage.namespace, grace=timedelta())
    await identity.revoke(kube, stage.node)
    for kind, name in ((Node, stage.node), (Namespace, stage.namespace)):
        with suppress(errors.NotFound, errors.Conflict):
            await kube.delete(kind, name)


GC_OFF = (flags.DISABLE_VM_GC.name,)
