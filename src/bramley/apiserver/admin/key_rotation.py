"""`POST /bramley/v1/rotate-keys`: sign tokens of ServiceAccounts with a new key, for `system:masters` alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from bramley.apiserver.admin.gate import Endpoint
from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.http.exchange import (
    Request,
    Send,
    json_response,
    send_response,
)
from bramley.base import log

logger = log.get(__name__)

PATH = "/bramley/v1/rotate-keys"
VOID_OLD = "voidOld"


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key by its name, and until when it verifies tokens; the signing key has no end yet."""

    name: str
    until: datetime | None = None


class Rotated(msgspec.Struct, frozen=True):
    """The keys after a rotation, the signing key first."""

    keys: list[Key]


def rotated(keys: Sequence[tuple[str, datetime | None]]) -> Rotated:
    """Return the response that lists these keys."""
    return Rotated([Key(name, until) for name, until in keys])


def endpoint(accounts: Accounts) -> Endpoint:
    """Return the endpoint that rotates the keys."""

    async def serve(request: Request, send: Send) -> None:
        void_old = request.query.get(VOID_OLD) == "true"
        accounts.rotate_keys(void_old=void_old)
        made = rotated(accounts.keys.told())
        logger.info(
            "Rotated the signing keys of ServiceAccounts", key=made.keys[0].name, void_old=void_old
        )
        await send_response(send, json_response(made))

    return Endpoint(PATH, "POST", serve, "the keys cannot be rotated")
