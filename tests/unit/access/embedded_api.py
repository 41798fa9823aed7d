"""The embedded API for tests of identities, and a transport that breaks after so many writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bramley.api.core import Namespace, Node, Pod
from bramley.api.meta import ObjectMeta
from bramley.app import embedded
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response, Stream, Transport
from tests import virtual_time

READS = {"GET"}


@dataclass
class Cut:
    """Sends requests up to the write of this number, then fails."""

    inner: Transport
    writes: int

    async def send(self, request: Request) -> Response:
        if request.method not in READS:
            if self.writes == 0:
                raise errors.TimedOut("the line is cut")
            self.writes -= 1
        return await self.inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self.inner.stream(request)

    async def close(self) -> None:
        await self.inner.close()


@dataclass(frozen=True)
class Served:
    api: embedded.Api
    token: Secret

    @property
    def transport(self) -> Transport:
        return self.api.transport(self.token)

    @property
    def kube(self) -> Client:
        return Client(self.transport, clock=virtual_time.clock())

    def cut_after(self, writes: int) -> Client:
        return Client(Cut(self.transport, writes), clock=virtual_time.clock())


@asynccontextmanager
async def served(*namespaces: str) -> AsyncIterator[Served]:
    async with embedded.running(clock=virtual_time.clock()) as (api, token):
        server = Served(api, token)
        for name in namespaces:
            await server.kube.create(Namespace(metadata=ObjectMeta(name=name)))
        yield server


async def bind_pod(
    kube: Client, name: str, node: str, *, namespace: str = "ns", **spec: Any
) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "vm", "image": "vm"}], **spec},
    }
    await kube.create_wire(Pod.resource, body, namespace=namespace)


async def a_node(kube: Client, name: str) -> Node:
    return await kube.create(Node(metadata=ObjectMeta(name=name)))
