"""A dispatch server, an API server and a simulated GitHub on one loopback socket, as peers of the command line."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.kube.http_servers import ReceivedRequest, Server, plain, serving

TOKEN = "canary-token"
CONFIG_MAP = "GET /api/v1/namespaces/team/configmaps/bramley-dispatch"


@dataclass(slots=True)
class Peer:
    """Answers by request line without its HTTP version; several answers to one are given in turn."""

    answers: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    server: Server | None = None

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url

    @property
    def received(self) -> list[ReceivedRequest]:
        assert self.server is not None
        return self.server.received

    @property
    def lines(self) -> list[str]:
        return [each.line.removesuffix(" HTTP/1.1") for each in self.received]

    def answer(self, line: str, body: object, status: str = "200 OK") -> None:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers.setdefault(line, []).append((status, encoded))

    def publish(self, **addresses: str) -> None:
        metadata = {"name": "bramley-dispatch", "namespace": "team"}
        self.answer(
            CONFIG_MAP,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": addresses},
        )

    async def handle(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        found = self.answers.get(received.line.removesuffix(" HTTP/1.1"), [])
        status, body = found[0] if found else ("404 Not Found", b"{}")
        if len(found) > 1:
            found.pop(0)
        plain(writer, body, status)

    def kubeconfig(self, folder: Path, user: str = f"token: {TOKEN}") -> Path:
        file = folder / "kubeconfig"
        file.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            f"clusters: [{{name: k, cluster: {{server: '{self.url}'}}}}]\n"
            f"users: [{{name: u, user: {{{user}}}}}]\n"
            "contexts: [{name: c, context: {cluster: k, user: u, namespace: team}}]\n"
        )
        return file


@contextmanager
def a_peer() -> Iterator[Peer]:
    """Serve in a thread, because the command line runs an event loop of its own."""
    peer = Peer()
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving(peer.handle) as server:
            peer.server = server
            ready.set()
            await stop.wait()
            # The clients have closed their connections, and their handlers end before the loop does.
            while server.closed < server.sockets:
                await asyncio.sleep(0.001)

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(10)
        yield peer
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
