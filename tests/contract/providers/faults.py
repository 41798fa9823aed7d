"""Faults between a client and an application: scripted answers, lost ones and late ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Fault:
    """What happens to the next `times` requests with this method whose path contains `path`."""

    method: str
    path: str
    status: int = 503
    body: str = "<html>bad gateway</html>"
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    # Whether the request is processed, so that only its answer is lost.
    is_processed: bool = False
    # How long the answer takes, over HTTP.
    seconds: float = 0


class Faults:
    """The faults that are pending, and the requests so far."""

    def __init__(self) -> None:
        self.pending: list[Fault] = []
        self.requests: list[str] = []

    def take(self, method: str, path: str) -> Fault | None:
        """Record a request, and return its fault."""
        self.requests.append(f"{method} {path}")
        for fault in self.pending:
            if fault.method == method and fault.path in path:
                fault.times -= 1
                if fault.times == 0:
                    self.pending.remove(fault)
                return fault
        return None


class Faulty:
    """An application with faults."""

    def __init__(self, app: ASGIApp, faults: Faults) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._faults.take(scope["method"], scope["path"])
        if fault is None:
            await self._app(scope, receive, send)
            return
        await asyncio.sleep(fault.seconds)
        if fault.is_processed:
            await self._app(scope, receive, _dropped)
        response = Response(fault.body, fault.status, fault.headers)
        await response(scope, receive, send)


async def _dropped(message: Message) -> None:
    """Drop a part of the answer."""
