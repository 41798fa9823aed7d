"""A fake kubelet that serves the log of a container to the real API server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from tests.contract.kube_client.targets import World
from tests.unit.kube.certificates import Authority


@dataclass(slots=True)
class Kubelet:
    """Records its requests, and whether the client has disconnected."""

    port: int = 0
    requests: list[str] = field(default_factory=list)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request for logs: two lines, and if it follows, nothing until the client disconnects."""
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b"\r\n", 1)[0].decode()
        self.requests.append(line)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"4\r\none\n\r\n4\r\ntwo\n\r\n")
        if "follow=true" in line:
            await reader.read()
            self.disconnected.set()
        else:
            writer.write(b"0\r\n\r\n")
        writer.close()


@asynccontextmanager
async def running(world: World, node: str, folder: Path) -> AsyncIterator[Kubelet]:
    """Run the kubelet of a Node, and publish its address in the Node's status."""
    context = Authority.make().server_context(folder, "127.0.0.1", clients=ssl.CERT_NONE)
    kubelet = Kubelet()
    server = await asyncio.start_server(kubelet.serve, "127.0.0.1", 0, ssl=context)
    kubelet.port = server.sockets[0].getsockname()[1]
    await world.kube.create(Node(metadata=ObjectMeta(name=node)))
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
    await world.kube.merge_patch(Node, node, {"status": status}, subresource="status")
    try:
        yield kubelet
    finally:
        server.close()
        await world.kube.delete(Node, node)
