"""The agent's own token: renewed before it expires, stored in the state folder, with the kubeconfig's token as the fallback.

Both are bound to the agent's ServiceAccount only. A token that was bound to the Node would become invalid with it, and the agent could
not register a Node that was deleted: its Pods would be deleted, and their jobs lost. Other kinds of credentials are used unchanged.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from bramley.agent import atomic_file
from bramley.api.names import access, agent
from bramley.base import errors, jwt_claims, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube import credentials
from bramley.kube.client import Client
from bramley.kube.credentials import Credential, Credentials

logger = log.get(__name__)

RENEWED_AFTER = 0.8
MAX_SLEEP = timedelta(minutes=5)
_RETRY = Backoff(timedelta(seconds=10), timedelta(minutes=5))
_BEARER = "Bearer "


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token that renewal needs."""

    sub: str
    iat: int
    exp: int

    @property
    def lifetime(self) -> timedelta:
        """Return how long the token is valid in total."""
        return timedelta(seconds=self.exp - self.iat)

    @property
    def renew_at(self) -> datetime:
        """Return when to renew the token."""
        return datetime.fromtimestamp(self.iat, UTC) + self.lifetime * RENEWED_AFTER


class AgentToken:
    """Credentials that prefer the renewed token over those of the kubeconfig; implements `Credentials`."""

    def __init__(self, kubeconfig: Credentials, file: Path) -> None:
        self._kubeconfig = kubeconfig
        self._file = file
        self._renewed = self._load()
        self._rejected: Credential | None = None

    async def current(self) -> Credential:
        """Return the credential to send."""
        return self._renewed or await self._kubeconfig.current()

    async def refused(self, credential: Credential) -> bool:
        """Fall back to the kubeconfig's token, and return to the renewed one if that is refused too."""
        if credential == self._renewed:
            logger.warning("Falling back to the kubeconfig's token", reason="renewed token refused")
            self._rejected, self._renewed = self._renewed, None
            return True
        if await self._kubeconfig.refused(credential):
            return True
        # The server may have refused the renewed token by mistake, and it is the only other credential.
        self._renewed, self._rejected = self._rejected, None
        return self._renewed is not None

    def store(self, token: str) -> None:
        """Use this token from now on, also after a restart."""
        # On disk first: a token that is used and not stored would be lost with the process.
        atomic_file.replace(self._file, token.encode())
        self._renewed = Credential(credentials.bearer(token, str(self._file)))

    def _load(self) -> Credential | None:
        try:
            token = self._file.read_text()
            stored = Credential(credentials.bearer(token, str(self._file)))
        except (OSError, UnicodeDecodeError, errors.BadConfiguration):
            return None
        # Its expiry is left to the server: our clock may be wrong, and the kubeconfig's token may have expired long ago.
        return stored if claims(stored) is not None else None


@dataclass(frozen=True, slots=True)
class AgentTokenRenewal:
    """Renews the token of one Node's agent."""

    token: AgentToken
    kube: Client
    _: KW_ONLY
    node: str
    clock: Clock
    rng: random.Random

    async def run(self) -> None:
        """Renew the token when it is due, until cancelled."""
        failures = 0
        while True:
            delay = MAX_SLEEP
            try:
                await self.renew_if_due()
                failures = 0
            except (errors.BramleyError, OSError) as error:
                failures += 1
                delay = _RETRY.delay(failures, self.rng)
                logger.warning("Agent token not renewed", error=str(error), retry_after=delay)
            await asyncio.sleep(delay.total_seconds())

    async def renew_if_due(self) -> bool:
        """Renew the token if it belongs to this agent and is due; return whether it was renewed."""
        current = claims(await self.token.current())
        if current is None or current.sub != f"{access.USER_PREFIX}{self.node}":
            return False
        if self.clock.now() < current.renew_at:
            return False
        issued = await self.kube.request_token(
            agent.service_account(self.node),
            access.NAMESPACE,
            audiences=(),
            expires=current.lifetime,
        )
        self.token.store(issued.token.reveal())
        logger.info("Renewed agent token", expires=issued.expires)
        return True


def claims(credential: Credential) -> Claims | None:
    """Return the claims of a credential's token; None if it has no token, or one without these claims."""
    header = credential.authorization.reveal() if credential.authorization else ""
    return jwt_claims.decode(header.removeprefix(_BEARER), Claims)
