"""The three servers that the suite asks: ours in process, ours over HTTP with TLS, and a real kube-apiserver.

A test opens a `World`: a client of an administrator, a namespace of the test's own and the suite's kind installed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import ConfigMap, Namespace
from bramley.api.meta import ObjectMeta
from bramley.app import apiserver, embedded
from bramley.app.listening import Address
from bramley.app.serving import Stop
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.kube import connecting
from bramley.kube.access import Access
from bramley.kube.client import Client
from bramley.kube.credentials import Credential, Fixed, bearer
from bramley.kube.http import HttpTransport
from bramley.kube.in_process import InProcessTransport
from tests.contract.kube_client.kinds import DEFINITION, Widget, WidgetSpec

T = TypeVar("T")


class Server(Protocol):
    """A server that runs, as the suite sees it."""

    def client(self, token: str | None = None) -> Client:
        """Return a client of an administrator, or of the owner of a token."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What one test works with."""

    server: Server
    kube: Client
    namespace: str

    async def config(self, name: str, **labels: str) -> ConfigMap:
        """Create a ConfigMap that says nothing."""
        place = ObjectMeta(name=name, namespace=self.namespace, labels=labels)
        return await self.kube.create(ConfigMap(metadata=place, data={"x": "1"}))

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

    def access(self) -> Access:
        """Return the administrator's way in."""
        return connecting.find(self.kubeconfig, environment={})

    def client(self, token: str | None = None) -> Client:
        """Return a client over a connection pool of its own."""
        access = self.access()
        if token is not None:
            stranger = Fixed(Credential(bearer(token, "test")))
            access = dataclasses.replace(access, credentials=stranger)
        return Client(HttpTransport(access))


@dataclass(frozen=True, slots=True)
class Target:
    """One of the three, and how to start it."""

    name: str
    start: Callable[[], AbstractAsyncContextManager[Server]]

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        """Start the server if need be and make room for one test."""
        async with self.start() as server, server.client() as kube:
            await install(kube)
            namespace = Namespace(metadata=ObjectMeta(generate_name="contract-"))
            made = await kube.create(namespace)
            yield World(server, kube, made.name)
            await kube.delete(Namespace, made.name)


@asynccontextmanager
async def in_process() -> AsyncIterator[Server]:
    """Run our server in memory."""
    async with embedded.running(clock=SystemClock()) as (api, token):
        yield InProcess(api, token.reveal())


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Server]:
    """Run our server with its files, certificates and sockets."""
    settings = apiserver.Settings(
        data_dir=folder / "data", listen=Address("127.0.0.1", 0), kubeconfig=folder / "kubeconfig"
    )
    started = asyncio.Event()
    stop = Stop()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            apiserver.serve(
                settings, stop=stop, started=lambda _: started.set(), clock=SystemClock()
            )
        )
        async with asyncio.timeout(30):
            await started.wait()
        try:
            yield OverHttp(settings.kubeconfig)
        finally:
            stop.ask()


@asynccontextmanager
async def real(kubeconfig: Path) -> AsyncIterator[Server]:
    """Use a control plane that runs already."""
    yield OverHttp(kubeconfig)


async def install(kube: Client) -> None:
    """Teach the server the suite's kind, if it does not know it yet, and wait until it serves it."""
    try:
        await kube.create_wire(CustomResourceDefinition.resource, DEFINITION)
    except errors.AlreadyExists:
        return

    async def served() -> bool:
        try:
            await kube.list(Widget)
        except errors.NotFound:
            return False
        return True

    await eventually(served)


async def eventually(ask: Callable[[], Awaitable[T]], *, seconds: float = 30) -> T:
    """Ask until the answer is true."""
    async with asyncio.timeout(seconds):
        while not (answer := await ask()):
            await asyncio.sleep(0.02)
    return answer
