"""Paths for `system:masters` alone, whatever roles say: one check of who asks, and one line in the audit log for each answer.

What holds every Secret, or voids every token, is served through here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import (
    Message,
    Receive,
    Request,
    Scope,
    Send,
)
from bramley.apiserver.server.api import Callers
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.base.errors import BadConfiguration

if TYPE_CHECKING:
    from bramley.apiserver.server.audit import Log

Serve: TypeAlias = Callable[[Request, Send], Awaitable[None]]
_INSUFFICIENT_STORAGE = 507


class Work(msgspec.Struct, frozen=True):
    """What is done for a method on a path; `fails` begins what is said when the disk does not take it."""

    path: str
    method: str
    serve: Serve
    fails: str


class Door(msgspec.Struct, frozen=True):
    """Where masters come in: who asks is checked here, and either answer is noted."""

    callers: Callers
    settings: Settings
    audit: Log | None = None


class Endpoint(msgspec.Struct, frozen=True):
    """One path behind the door."""

    work: Work
    door: Door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or raise why not; either is noted."""
        request = Request(scope, receive, self.door.settings)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(request, message["status"])
            await send(message)

        try:
            self._check(request)
            await self._serve(request, noting)
        except ApiError as error:
            self._note(request, error.code)
            raise

    def _check(self, request: Request) -> None:
        request.check_headers()
        self.door.callers.check_master(request)
        if request.method != self.work.method:
            raise status.method_not_allowed()

    async def _serve(self, request: Request, send: Send) -> None:
        try:
            await self.work.serve(request, send)
        except (StorageUnavailable, BadConfiguration, OSError) as error:
            told = f"{self.work.fails}: {error}"
            raise ApiError(_INSUFFICIENT_STORAGE, "InternalError", told) from error

    def _note(self, request: Request, code: int) -> None:
        if self.door.audit is not None:
            self.door.audit.note(request, code)
