"""Endpoints for `system:masters` alone, whatever roles grant, and key rotation, which is one of them.

`AdminGate` checks access once and records each response in the audit log. Whatever exposes every Secret or invalidates every
token is served through it and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.auth.access_control import AccessControl
from bramley.apiserver.auth.service_account_tokens import ServiceAccountTokens
from bramley.apiserver.http.exchange import (
    Message,
    Receive,
    Request,
    Scope,
    Send,
    json_response,
    send_response,
)
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.base import log
from bramley.base.errors import BadConfiguration

logger = log.get(__name__)

ROTATE_KEYS_PATH = "/bramley/v1/rotate-keys"
VOID_OLD = "voidOld"
Serve: TypeAlias = Callable[[Request, Send], Awaitable[None]]
RecordAudit: TypeAlias = Callable[[Request, int], None]
_INSUFFICIENT_STORAGE = 507


class Endpoint(msgspec.Struct, frozen=True):
    """The handler of one method on one path; `failure` begins the message when the disk refuses it."""

    path: str
    method: str
    serve: Serve
    failure: str


class AdminGate(msgspec.Struct, frozen=True):
    """Serves one endpoint: checks the caller first, and records each response in the audit log."""

    endpoint: Endpoint
    access_control: AccessControl
    settings: Settings
    record: RecordAudit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or raise the error that becomes its response; both are recorded."""
        request = Request(scope, receive, self.settings)

        async def recorded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.record(request, message["status"])
            await send(message)

        try:
            self._check(request)
            await self._serve(request, recorded_send)
        except ApiError as error:
            self.record(request, error.code)
            raise

    def _check(self, request: Request) -> None:
        request.check_headers()
        self.access_control.check_master(request)
        if request.method != self.endpoint.method:
            raise status.method_not_allowed()

    async def _serve(self, request: Request, send: Send) -> None:
        try:
            await self.endpoint.serve(request, send)
        except (StorageUnavailable, BadConfiguration, OSError) as error:
            message = f"{self.endpoint.failure}: {error}"
            raise ApiError(_INSUFFICIENT_STORAGE, "InternalError", message) from error


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key by its name, and until when it verifies tokens; the signing key has no end yet."""

    name: str
    until: datetime | None = None


class RotatedKeys(msgspec.Struct, frozen=True):
    """The keys after a rotation, the signing key first."""

    keys: list[Key]

    @classmethod
    def of(cls, keys: Sequence[tuple[str, datetime | None]]) -> RotatedKeys:
        """Return keys by name and end."""
        return cls([Key(name, until) for name, until in keys])


def key_rotation(accounts: ServiceAccountTokens) -> Endpoint:
    """Return the endpoint that makes a new signing key for tokens of ServiceAccounts."""

    async def serve(request: Request, send: Send) -> None:
        void_old = request.query.get(VOID_OLD) == "true"
        accounts.rotate_keys(void_old=void_old)
        rotated = RotatedKeys.of(accounts.keys.key_ids())
        logger.info(
            "Rotated the signing keys of ServiceAccounts",
            key=rotated.keys[0].name,
            void_old=void_old,
        )
        await send_response(send, json_response(rotated))

    return Endpoint(ROTATE_KEYS_PATH, "POST", serve, "the keys cannot be rotated")
