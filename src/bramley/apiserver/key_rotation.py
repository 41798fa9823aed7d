"""`POST /bramley/v1/rotate-keys`: sign tokens of ServiceAccounts with a new key, for `system:masters` alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from bramley.apiserver import status
from bramley.apiserver.api import Callers
from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.rest.exchange import Receive, Request, Scope, Send, json_answer, send_answer
from bramley.apiserver.settings import Settings
from bramley.apiserver.status import ApiError
from bramley.base import log

if TYPE_CHECKING:
    from bramley.apiserver.audit import Log

logger = log.get(__name__)

PATH = "/bramley/v1/rotate-keys"
VOID_OLD = "voidOld"


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key by its name, and until when it verifies; the one that signs has no end yet."""

    name: str
    until: datetime | None = None


class Rotated(msgspec.Struct, frozen=True):
    """The keys after a rotation, the one that signs first."""

    keys: list[Key]


def rotated(told: Sequence[tuple[str, datetime | None]]) -> Rotated:
    """Return keys as they are told of."""
    return Rotated([Key(name, until) for name, until in told])


class Endpoint(msgspec.Struct, frozen=True):
    """The path that rotates the keys."""

    accounts: Accounts
    callers: Callers
    settings: Settings
    audit: Log | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or raise why not; either is noted."""
        request = Request(scope, receive, self.settings)
        try:
            self._check(request)
        except ApiError as error:
            self._note(request, error.code)
            raise
        void_old = request.query.get(VOID_OLD) == "true"
        self.accounts.rotate_keys(void_old=void_old)
        self._note(request, 200)
        made = rotated(self.accounts.keys.told())
        logger.info("Rotated the keys of ServiceAccounts", key=made.keys[0].name, void_old=void_old)
        await send_answer(send, json_answer(made))

    def _check(self, request: Request) -> None:
        request.check_headers()
        self.callers.check_master(request)
        if request.method != "POST":
            raise status.method_not_allowed()

    def _note(self, request: Request, code: int) -> None:
        if self.audit is not None:
            self.audit.note(request, code)
