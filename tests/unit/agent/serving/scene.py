"""The agent's server on a free port, an API that authenticates its clients, and sources that a test fills."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp

from bramley.agent.host import Space
from bramley.agent.processes import SystemPrograms
from bramley.agent.serving.server import Server, Settings
from bramley.agent.serving.sources import Line, LogRequest, NodeUsage, PodUsage, UsageSample
from bramley.api.core import Namespace
from bramley.api.meta import ObjectMeta
from bramley.apiserver.auth.bootstrap import KUBELET_CLIENT
from bramley.apiserver.pki import tls
from bramley.app import embedded
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.kube.client import Client

NODE = "mac-1"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
READER, STRANGER = "reader", "stranger"


@dataclass
class Logs:
    """The lines of one Pod; if followed, the stream stays open until `more` is set."""

    lines: Sequence[bytes] = (b"one", b"two")
    requests: list[LogRequest] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    fails_with: Exception | None = None

    def batches(self, request: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        self.requests.append(request)
        if (request.namespace, request.pod) != ("ns", "p"):
            raise errors.NotFound(f'pod "{request.pod}" does not exist')
        return self._batches(request)

    async def _batches(self, request: LogRequest) -> AsyncGenerator[Sequence[Line], None]:
        try:
            for line in self.lines:
                yield [Line(START, line)]
            if self.fails_with is not None:
                raise self.fails_with
            if request.follow:
                await self.more.wait()
        finally:
            self.closed.set()


class Stats:
    """Fixed usage."""

    def usage(self) -> NodeUsage:
        used = UsageSample(START, 12.5, 0.25, 4096)
        pod = PodUsage(
            namespace="ns", pod="p", uid="u", container="vm", started_at=START, used=used
        )
        return NodeUsage(node=NODE, started_at=START, used=used, pods=[pod], disk=Space(1000, 400))


@dataclass
class Scene:
    server: Server
    logs: Logs
    kube: Client
    tokens: dict[str, Secret]
    folder: Path
    certificates: tls.Certificates
    session: aiohttp.ClientSession

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.server.port}{path}"

    def headers(self, user: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[user].reveal()}"} if user else {}

    async def get(self, path: str, user: str | None = READER, **more: object) -> tuple[int, str]:
        """Send a request with the token of a user, or without one."""
        headers = self.headers(user)
        async with self.session.get(self.url(path), headers=headers, **more) as answer:  # type: ignore[arg-type]
            return answer.status, await answer.text()

    def client_context(self, name: str, groups: Sequence[str] = ()) -> ssl.SSLContext:
        """Return a context with a client certificate of the API's authority."""
        made = self.certificates.issue(name, groups, lifetime=timedelta(hours=1))
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(made.certificate)
        key.write_text(made.key.reveal())
        context = trusting()
        context.load_cert_chain(certificate, key)
        return context


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@asynccontextmanager
async def scene(folder: Path, **changes: object) -> AsyncIterator[Scene]:
    clock, logs = SystemClock(), Logs()
    certificates = tls.Certificates(folder / "authority")
    certificates.ensure()
    settings = Settings(
        node=NODE,
        folder=folder / "serving",
        client_authority=folder / "authority" / "tls" / "ca.crt",
    )
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    async with embedded.running(clock=clock) as (api, admin):
        kube = Client(api.transport(admin))
        await kube.create(Namespace(metadata=ObjectMeta(name="ns")))
        tokens = {name: api.tokens.issue(name, ()) for name in (READER, STRANGER)}
        tokens["unknown"] = Secret("no-token-of-ours")
        await allow(kube, READER)
        server = Server(
            settings,
            kube=kube,
            logs=logs,
            stats=Stats(),
            programs=SystemPrograms({"PATH": "/usr/bin:/bin"}),
            clock=clock,
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run())
            await server.ready.wait()
            connector = aiohttp.TCPConnector(ssl=trusting())
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Scene(server, logs, kube, tokens, folder, certificates, session)
            running.cancel()
        # A TLS connection is closed in later iterations of the loop.
        await asyncio.sleep(0.05)


async def allow(kube: Client, user: str, role: str = "system:kubelet-api-admin") -> None:
    from bramley.api.rbac import ClusterRoleBinding

    group = "rbac.authorization.k8s.io"
    body = {
        "metadata": {"name": f"allow-{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await kube.create_wire(ClusterRoleBinding.resource, body)


__all__ = ["KUBELET_CLIENT", "NODE", "READER", "START", "STRANGER", "Logs", "Scene", "scene"]
