"""Access tokens of installations, cached until shortly before they expire; concurrent callers share one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.github.responses import AccessToken

# A token that is returned lives longer than any call that uses it, even if the clock is slow by a minute.
RENEWED_BEFORE = timedelta(minutes=5)


class InstallationTokens:
    """Returns a valid token of an installation, created by `create` when there is none."""

    def __init__(self, create: Callable[[int], Awaitable[AccessToken]], clock: Clock) -> None:
        self._create = create
        self._clock = clock
        self._tokens: dict[int, AccessToken] = {}
        self._pending: dict[int, asyncio.Future[AccessToken]] = {}

    async def current(self, installation_id: int) -> Secret:
        """Return a token with some minutes left; a failed creation fails for all callers that wait for it."""
        while True:
            token = self._tokens.get(installation_id)
            if token is not None and self._clock.now() < token.expires_at - RENEWED_BEFORE:
                return token.token
            pending = self._pending.get(installation_id)
            if pending is None:
                return (await self._created(installation_id)).token
            # Unlike `await pending`, this does not cancel it with one of the callers.
            await asyncio.wait({pending})
            if not pending.cancelled():
                return pending.result().token

    def discard(self, installation_id: int, refused: Secret) -> None:
        """Forget a token that GitHub refused, unless there is a newer one."""
        known = self._tokens.get(installation_id)
        if known is not None and known.token == refused:
            del self._tokens[installation_id]

    async def _created(self, installation_id: int) -> AccessToken:
        pending = self._pending[installation_id] = asyncio.get_running_loop().create_future()
        try:
            token = await self._create(installation_id)
        except errors.BramleyError as error:
            pending.set_exception(error)
            # Marks it as retrieved: there may be no other caller.
            pending.exception()
            raise
        else:
            self._tokens[installation_id] = token
            pending.set_result(token)
            return token
        finally:
            # Only pending here if this caller was cancelled; one of the others creates the token then.
            pending.cancel()
            del self._pending[installation_id]
