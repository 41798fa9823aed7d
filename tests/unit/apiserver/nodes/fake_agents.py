"""Fake agents: their responses, and the requests that they received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from bramley.apiserver.nodes.usage import Kubelets, UsageCache
from bramley.base import errors
from bramley.kube.transport import Response, Stream
from tests import virtual_time
from tests.unit.apiserver.world import PODS, Json, World, a_pod

AT = "2026-01-02T03:04:05Z"


@dataclass
class Agents:
    """Lines to made-up agents by address."""

    summaries: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    chunks: list[bytes] = field(default_factory=lambda: [b"one\n", b"two\n"])
    goes_on: bool = False
    breaks: bool = False
    pause_seconds: float = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    open: int = 0
    is_closed: bool = False

    async def get(self, url: str, path: str, *, within: timedelta) -> Response:
        self.requests.append((url, path, {}))
        found = self.summaries.get(url)
        if found is None:
            await asyncio.sleep(within.total_seconds())
            raise errors.TimedOut("no answer")
        return Response(200, {}, found if isinstance(found, bytes) else msgspec.json.encode(found))

    @asynccontextmanager
    async def stream(self, url: str, path: str, query: Mapping[str, str]) -> AsyncIterator[Stream]:
        self.requests.append((url, path, dict(query)))
        if self.status == 0:
            raise errors.ApiUnavailable(f"GET {path}: Cannot connect to host")
        self.open += 1
        try:
            yield Stream(self.status, {}, self._body())
        finally:
            self.open -= 1

    async def _body(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            await asyncio.sleep(self.pause_seconds)
            yield chunk
        if self.breaks:
            raise errors.ApiUnavailable("the agent went away")
        if self.goes_on:
            await asyncio.Event().wait()

    async def close(self) -> None:
        self.is_closed = True

    @property
    def nodes(self) -> Kubelets:
        return Kubelets(self, UsageCache(self, virtual_time.clock()))


def used(nano_cores: int | None, memory: int = 2048) -> Json:
    cpu: Json = {"time": AT}
    if nano_cores is not None:
        cpu["usageNanoCores"] = nano_cores
    return {"cpu": cpu, "memory": {"time": AT, "workingSetBytes": memory}}


async def place(world: World, node: str, address: str, **labels: str) -> None:
    """Make a Node whose agent is at this address."""
    addresses = [{"type": "InternalIP", "address": address}]
    ports = {"kubeletEndpoint": {"Port": 10251}}
    body = {
        "metadata": {"name": node, "labels": labels},
        "status": {"addresses": addresses, "daemonEndpoints": ports},
    }
    await world.create("/api/v1/nodes", body)


async def bind(world: World, name: str, node: str, **labels: str) -> str:
    """Make a Pod on a Node, and return its uid."""
    pod = a_pod(name, nodeName=node)
    pod["metadata"]["labels"] = labels
    return str((await world.create(PODS, pod)).json["metadata"]["uid"])
