"""The three servers of the suite, and requests with a token to any of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.app import embedded
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.credentials import Credential, StaticCredentials, bearer
from bramley.kube.http import HttpTransport
from bramley.kube.in_process import InProcessTransport
from bramley.kube.transport import Request, Response, Transport
from tests.contract.agent_rule import scene as scenes
from tests.contract.agent_rule.scene import Scene
from tests.contract.agent_rule.table import Row

Json = dict[str, Any]
Sign = Callable[[Json], str]
SECONDS = 180


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: an administrator's client, a transport for any token, and its signing key."""

    kube: Client
    transport: Callable[[Secret], Transport]
    sign: Sign
    is_real: bool = False
    open: dict[Secret, Transport] = field(default_factory=dict)

    async def send(self, token: Secret, row: Row) -> Response:
        """Send one request as the owner of a token."""
        path, _, more = row.path.partition("?")
        query = {**row.query, **(dict([more.split("=")]) if more else {})}
        body = None if row.body is None else msgspec.json.encode(row.body)
        media = None if row.body is None else row.media
        patience = timedelta(seconds=SECONDS)
        request = Request(
            row.method, path, query, body, media, headers=row.headers, deadline=patience
        )
        if token not in self.open:
            self.open[token] = self.transport(token)
        return await self.open[token].send(request)

    async def close(self) -> None:
        """Close all connections."""
        for transport in self.open.values():
            await transport.close()

    async def eventually(self, token: Secret, row: Row, code: int) -> None:
        """Repeat the request until the response has this code: a real server applies roles and policies a moment later."""
        async with asyncio.timeout(SECONDS):
            while (await self.send(token, row)).status != code:
                await asyncio.sleep(0.02)

    async def refused(self, token: Secret, row: Row) -> None:
        """Repeat the request until it is refused: on our server at once, on a real one when its caches are updated."""
        if not self.is_real:
            assert (await self.send(token, row)).status == 401
        async with asyncio.timeout(SECONDS):
            while (await self.send(token, row)).status not in {401, 403}:
                await asyncio.sleep(0.02)

    async def unknown(self, token: Secret, row: Row) -> None:
        """Repeat the request until it is unauthenticated: at once on our server, while a real one caches tokens for ten seconds."""
        if not self.is_real:
            assert (await self.send(token, row)).status == 401
        await self.eventually(token, row, 401)


Start = Callable[[], AbstractAsyncContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Target:
    """One of the three."""

    name: str
    start: Start

    @asynccontextmanager
    async def scene(self) -> AsyncIterator[tuple[Server, Scene]]:
        """Start the server if need be, build a scene on it, and run the controller of the agents' Roles where the server needs it."""
        async with self.start() as server, AsyncExitStack() as stack:
            stack.push_async_callback(server.close)
            if not server.is_real:
                yield server, await scenes.build(server.kube)
                return
            async with scenes.roles_kept(server.kube):
                scene = await scenes.build(server.kube)
                await settled(server, scene)
                yield server, scene


async def settled(server: Server, scene: Scene) -> None:
    """Wait until the server knows the rights of both agents, each kind of which it applies separately, and enforces the policy."""
    secrets = f"/api/v1/namespaces/{scene.namespace}/secrets"
    agents = ((scene.token, scene.node, "s-env"), (scene.others_token, scene.other, "s-theirs"))
    for token, node, name in agents:
        await server.eventually(token, Row("", "GET", f"/api/v1/nodes/{node}", 200), 200)
        await server.eventually(token, Row("", "GET", f"{secrets}/{name}", 200), 200)
        # An agent without rights is refused as well, so only after this a refusal is the policy's.
        await server.eventually(token, creating(node, 409), 409)
        await server.eventually(token, creating("stranger", 403), 403)


def creating(node: str, code: int) -> Row:
    """Return the request that creates a Node as a dry run."""
    return Row("", "POST", "/api/v1/nodes", code, {"dryRun": "All"}, {"metadata": {"name": node}})


@asynccontextmanager
async def in_process() -> AsyncIterator[Server]:
    """Run our server in memory."""
    keys = SigningKeys.in_memory()
    async with embedded.running(clock=SystemClock(), keys=keys) as (api, admin):

        def transport(token: Secret) -> Transport:
            return InProcessTransport(api.application, token=token)

        async with Client(transport(admin)) as kube:
            yield Server(kube, transport, keys.sign)


@asynccontextmanager
async def behind(kubeconfig: Path, sign: Sign, *, is_real: bool) -> AsyncIterator[Server]:
    """Use a server that runs already."""
    access = config_loader.load(kubeconfig, environment={})

    def transport(token: Secret) -> Transport:
        credentials = StaticCredentials(Credential(bearer(token.reveal(), "test")))
        return HttpTransport(dataclasses.replace(access, credentials=credentials))

    async with config_loader.connect(kubeconfig) as kube:
        yield Server(kube, transport, sign, is_real)


def signing_key(path: Path) -> Sign:
    """Return the signing key of the real server of the fixture."""

    def sign(claims: Json) -> str:
        import jwt

        return jwt.encode(claims, path.read_bytes(), "RS256")

    return sign
