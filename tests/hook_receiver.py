"""A receiver of webhooks in process, which checks their signatures."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from bramley.base.secret import Secret
from bramley.github import webhook_signatures
from bramley.kube.transport import Request, Response
from bramley.sim.github.webhooks import Hook

SECRET = Secret("webhook-canary")


@dataclass(frozen=True, slots=True)
class ReceivedHook:
    """One webhook as it arrived."""

    guid: str
    event: str
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded

    @property
    def job(self) -> tuple[int, str]:
        """Return the job and the action."""
        return self.payload["workflow_job"]["id"], self.payload["action"]


@dataclass(slots=True)
class HookReceiver:
    """Answers every webhook with a status; 403 if its signature is wrong."""

    status: int = 200
    received: list[ReceivedHook] = field(default_factory=list)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def hook(self) -> Hook:
        return Hook(self, "/webhooks/github", SECRET)

    async def send(self, request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers}
        body = request.body or b""
        if not webhook_signatures.is_valid(body, headers["x-hub-signature-256"], [SECRET]):
            return Response(403, {}, b"")
        hook = ReceivedHook(headers["x-github-delivery"], headers["x-github-event"], body)
        async with self._arrived:
            self.received.append(hook)
            self._arrived.notify_all()
        return Response(self.status, {}, b"")

    async def wait_for(self, count: int) -> None:
        async with self._arrived, asyncio.timeout(30):
            await self._arrived.wait_for(lambda: len(self.received) >= count)
