"""The three servers under test: ours in process, ours over HTTP with TLS, and a real kube-apiserver.

A test opens a `World`: a client of an administrator, the test's own namespace, and the suite's kind installed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import ConfigMap, Namespace, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.pod import Pod
from bramley.app import embedded
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.credentials import Credential, StaticCredentials, bearer
from bramley.kube.http import HttpTransport
from bramley.kube.in_process import InProcessTransport
from tests.contract.kube_client.kinds import DEFINITION, Widget, WidgetSpec, a_pod

T = TypeVar("T")


class Server(Protocol):
    """A running server."""

    def client(self, token: str | None = None) -> Client:
        """Return a client of an administrator, or of the owner of a token."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """A server, an administrator's client and a namespace for one test."""

    server: Server
    kube: Client
    namespace: str

    async def config(self, name: str, **labels: str) -> ConfigMap:
        """Create a ConfigMap."""
        place = ObjectMeta(name=name, namespace=self.namespace, labels=labels)
        return await self.kube.create(ConfigMap(metadata=place, data={"x": "1"}))

    @property
    def mac(self) -> str:
        """Return the name of a Node that does not exist and that no other test uses.

        A cluster deletes all Pods that are bound to a Node that has been missing for a while.
        """
        return f"mac-of-{self.namespace}"

    async def pod(self, name: str, *, node: str) -> Pod:
        """Create a Pod on a Node, once the namespace has the account that a Pod needs."""

        async def has_account() -> bool:
            try:
                await self.kube.get(ServiceAccount, "default", namespace=self.namespace)
            except errors.NotFound:
                return False
            return True

        await eventually(has_account)
        return await self.kube.create(a_pod(name, self.namespace, node=node))

    async def widget(self, name: str, size: int = 1, mode: str = "") -> Widget:
        """Create an object of the suite's own kind."""
        place = ObjectMeta(name=name, namespace=self.namespace)
        return await self.kube.create(Widget(metadata=place, spec=WidgetSpec(size=size, mode=mode)))


@dataclass(frozen=True, slots=True)
class InProcess:
    """Our server, called without a socket."""

    api: embedded.Api
    admin: str

    def client(self, token: str | None = None) -> Client:
        """Return a client over the application."""
        return Client(InProcessTransport(self.api.application, token=token or self.admin))


@dataclass(frozen=True, slots=True)
class OverHttp:
    """A server behind a socket, ours or the real one."""

    kubeconfig: Path

    def access(self) -> ClientConfig:
        """Return the administrator's configuration."""
        return config_loader.load(self.kubeconfig, environment={})

    def client(self, token: str | None = None) -> Client:
        """Return a client with its own connection pool."""
        access = self.access()
        if token is not None:
            credentials = StaticCredentials(Credential(bearer(token, "test")))
            access = dataclasses.replace(access, credentials=credentials)
        return Client(HttpTransport(access))


@dataclass(frozen=True, slots=True)
class Target:
    """One of the three, and how to start it."""

    name: str
    start: Callable[[], AbstractAsyncContextManager[Server]]

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        """Start the server if it does not run, and create the namespace of one test."""
        async with self.start() as server, server.client() as kube:
            await install(kube)
            namespace = Namespace(metadata=ObjectMeta(generate_name="contract-"))
            made = await kube.create(namespace)
            yield World(server, kube, made.name)
            with suppress(errors.NotFound):
                await kube.delete(Namespace, made.name)


@asynccontextmanager
async def in_process() -> AsyncIterator[Server]:
    """Run our server in memory."""
    async with embedded.running(clock=SystemClock(), controllers=True) as (api, token):
        yield InProcess(api, token.reveal())


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Run our server in a process and yield its kubeconfig."""
    kubeconfig, log = folder / "kubeconfig", folder / "log"
    flags = {"data-dir": folder / "data", "listen": "127.0.0.1:0", "kubeconfig-out": kubeconfig}
    command = ["apiserver", *(f"--{name}={value}" for name, value in flags.items())]
    program = "from bramley.cli.main import main; main()"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-c", program, *command], stdout=output, stderr=output
        ) as process,
    ):
        try:
            wait_for(kubeconfig, process, log)
            yield kubeconfig
        finally:
            process.terminate()
            process.wait(timeout=180)


def wait_for(kubeconfig: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the file, which is written when clients can connect."""
    deadline = time.monotonic() + 180
    while not kubeconfig.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@asynccontextmanager
async def behind(kubeconfig: Path) -> AsyncIterator[Server]:
    """Use a server that runs already."""
    yield OverHttp(kubeconfig)


async def install(kube: Client) -> None:
    """Create the suite's kind, if it does not exist, and wait until it is served."""
    # Another test may have created it just now.
    with suppress(errors.AlreadyExists):
        await kube.create_wire(CustomResourceDefinition.resource, DEFINITION)

    async def served() -> bool:
        try:
            await kube.list(Widget, namespace="default")
        except errors.NotFound:
            return False
        return True

    await eventually(served)


async def eventually(condition: Callable[[], Awaitable[T]], *, seconds: float = 180) -> T:
    """Wait until the condition returns a true value, and return it."""
    async with asyncio.timeout(seconds):
        while not (answer := await condition()):
            await asyncio.sleep(0.02)
    return answer
