"""The agent's own token: renewed before it ends, kept in the state folder, and given up for the one it began with.

A renewed token is bound to the Node and dies with it. The token of the kubeconfig stays the fallback, so that a Node that was
deleted can be registered again for as long as that one lives. Identities of other kinds are used as they are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from bramley.agent import atomic_file
from bramley.api.core import Node
from bramley.api.meta import ObjectMeta
from bramley.api.names import access, agent
from bramley.base import jwt_claims as tokens
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube import credentials
from bramley.kube.client import Client
from bramley.kube.credentials import Credential, Credentials

logger = log.get(__name__)

RENEWED_AFTER = 0.8
LONGEST_REST = timedelta(minutes=5)
_RETRY = Backoff(timedelta(seconds=10), timedelta(minutes=5))
_BEARER = "Bearer "


class Claims(msgspec.Struct, frozen=True):
    """What a token says of itself."""

    sub: str
    iat: int
    exp: int

    @property
    def life(self) -> timedelta:
        """Return for how long it was made."""
        return timedelta(seconds=self.exp - self.iat)

    @property
    def due(self) -> datetime:
        """Return when it is to be renewed."""
        return datetime.fromtimestamp(self.iat, UTC) + self.life * RENEWED_AFTER


class AgentToken:
    """Credentials that prefer the renewed token, where there is one; implements `Credentials`."""

    def __init__(self, given: Credentials, file: Path) -> None:
        self._given = given
        self._file = file
        self._renewed = self._kept()
        self._aside: Credential | None = None

    async def current(self) -> Credential:
        """Return what to show now."""
        return self._renewed or await self._given.current()

    async def refused(self, credential: Credential) -> bool:
        """Go from the renewed token to the first one when its Node is gone, and back if that one is worth less."""
        if credential == self._renewed:
            logger.warning("Going back to the first token", reason="the renewed one was refused")
            self._aside, self._renewed = self._renewed, None
            return True
        if await self._given.refused(credential):
            return True
        # A server that refused the renewed one by mistake must not leave us with nothing.
        self._renewed, self._aside = self._aside, None
        return self._renewed is not None

    def take(self, token: str) -> None:
        """Use this token from now on, also after a restart."""
        atomic_file.replace(self._file, token.encode())
        self._renewed = Credential(credentials.bearer(token, str(self._file)))

    def _kept(self) -> Credential | None:
        try:
            token = self._file.read_text()
            kept = Credential(credentials.bearer(token, str(self._file)))
        except (OSError, UnicodeDecodeError, errors.BadConfiguration):
            return None
        # Whether it is still worth anything is the server's to say: our clock may be wrong, and the first token long over.
        return kept if claims(kept) is not None else None


class AgentTokenRenewal:
    """Renews the token of one Node's agent; `uid` tells which Node that is now."""

    def __init__(
        self,
        own: AgentToken,
        kube: Client,
        *,
        node: str,
        uid: Callable[[], str],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._own = own
        self._kube = kube
        self._node = node
        self._uid = uid
        self._clock = clock
        self._rng = rng

    async def run(self) -> None:
        """Renew whenever it is due, until cancelled."""
        failures = 0
        while True:
            rest = LONGEST_REST
            try:
                await self.look()
                failures = 0
            except (errors.BramleyError, OSError) as error:
                failures += 1
                rest = _RETRY.delay(failures, self._rng)
                logger.warning("The agent's token cannot be renewed yet", error=str(error))
            await asyncio.sleep(rest.total_seconds())

    async def look(self) -> bool:
        """Renew the token if it is ours to renew and due; tell whether that was so."""
        said, uid = claims(await self._own.current()), self._uid()
        is_ours = said is not None and said.sub == f"{access.USER_PREFIX}{self._node}"
        if said is None or not is_ours or not uid or self._clock.now() < said.due:
            return False
        issued = await self._kube.request_token(
            agent.service_account(self._node),
            access.NAMESPACE,
            audiences=(),
            expires=said.life,
            bound_to=Node(metadata=ObjectMeta(name=self._node, uid=uid)),
        )
        self._own.take(issued.token.reveal())
        logger.info("Renewed the agent's token", until=issued.expires)
        return True


def claims(credential: Credential) -> Claims | None:
    """Return what the token of a credential says; None if it is no token that says anything."""
    shown = credential.authorization.reveal() if credential.authorization else ""
    return tokens.read(shown.removeprefix(_BEARER), Claims)
