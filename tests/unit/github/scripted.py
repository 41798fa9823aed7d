"""A transport with scripted responses, and a client on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.github.client import Call, Credential, GitHubClient, Settings
from bramley.kube.transport import Request, Response
from tests import virtual_time

TOKEN = "ghs_" + "canary" * 6
CREDENTIAL = Credential("installation 1", Secret(TOKEN))
READ = Call("GET", "/orgs/acme/actions/runners", repeatable=True)
WRITE = Call("POST", "/orgs/acme/actions/runners/generate-jitconfig", body={"name": "a"})

Reply = Response | Exception | float


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> Response:
    named: Mapping[str, str] = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, body)


@dataclass(slots=True)
class ScriptedTransport:
    """Answers with the replies in order, the last one for ever; a number is a wait before the next."""

    replies: list[Reply]
    requests: list[Request] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        while True:
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            if isinstance(reply, float):
                await asyncio.sleep(reply)
            elif isinstance(reply, Exception):
                raise reply
            else:
                return reply


def a_client(
    *replies: Reply,
    settings: Settings | None = None,
    registry: CollectorRegistry | None = None,
    clock: Callable[[], Clock] = virtual_time.clock,
) -> tuple[GitHubClient, ScriptedTransport]:
    transport = ScriptedTransport(list(replies))
    client = GitHubClient(
        transport,
        clock=clock(),
        registry=registry or CollectorRegistry(),
        rng=random.Random(1),
        settings=settings,
    )
    return client, transport
