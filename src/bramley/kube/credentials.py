"""Who we are: fixed credentials, and tokens in files that somebody else renews.

A transport asks before each request, so that a token which changed is used from then on, and asks once more when the
server refused one. `exec_plugin` has the credentials that a program makes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube.tls import ClientCertificate

logger = log.get(__name__)

REREAD_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Credential:
    """What one request shows: an Authorization header, a client certificate, both or nothing."""

    authorization: Secret | None = None
    certificate: ClientCertificate | None = None


class Credentials(Protocol):
    """Gives the credential of the moment."""

    async def current(self) -> Credential:
        """Return what to show now."""
        ...

    async def refused(self, credential: Credential) -> bool:
        """Hear that the server did not accept this one, and tell whether there is another to try."""
        ...


def bearer(token: str, source: str) -> Secret:
    """Return the header value for a token; what cannot stand in a header is refused without showing it."""
    text = token.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise errors.BadConfiguration(f"{source}: holds no usable token; put one there on one line")
    return Secret(f"Bearer {text}")


def basic(username: str, password: Secret) -> Secret:
    """Return the header value for a name and a password."""
    pair = base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()
    return Secret(f"Basic {pair}")


def as_secret(wanted: type, value: Any) -> Any:
    """Let msgspec put texts into Secret fields."""
    if wanted is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError("Expected `str`")


@dataclass(frozen=True, slots=True)
class Fixed:
    """A credential that never changes."""

    credential: Credential = Credential()

    async def current(self) -> Credential:
        """Return the one there is."""
        return self.credential

    async def refused(self, credential: Credential) -> bool:
        """Know no other."""
        return credential != self.credential


class Replaceable:
    """Credentials out of a configuration that somebody may write anew, such as a kubeconfig with another token in it."""

    def __init__(self, held: Credentials, read: Callable[[], Credentials]) -> None:
        self._held = held
        self._read = read

    async def current(self) -> Credential:
        """Return what the configuration held when it was read last."""
        return await self._held.current()

    async def refused(self, credential: Credential) -> bool:
        """Read the configuration again; another credential in it is worth another try."""
        if await self._held.refused(credential):
            return True
        try:
            fresh = self._read()
            found = await fresh.current()
        except errors.BadConfiguration as error:
            # It may be just about to be written.
            logger.warning("Keeping the old credentials", error=str(error))
            return False
        self._held = fresh
        return found != credential


class TokenFile:
    """A token in a file that is renewed from outside, as the kubelet does for Pods."""

    def __init__(
        self, path: Path, *, clock: Clock, certificate: ClientCertificate | None = None
    ) -> None:
        self._path = path
        self._clock = clock
        self._certificate = certificate
        self._held: Credential | None = None
        self._read_at = 0.0

    async def current(self) -> Credential:
        """Return the token of the file, read again once a minute."""
        if self._held is None or self._age() >= REREAD_AFTER.total_seconds():
            return self._read()
        return self._held

    async def refused(self, credential: Credential) -> bool:
        """Read the file at once; another token in it is worth another try."""
        return self._read() != credential

    def _age(self) -> float:
        return self._clock.monotonic() - self._read_at

    def _read(self) -> Credential:
        self._read_at = self._clock.monotonic()
        try:
            token = bearer(self._path.read_text(), str(self._path))
            self._held = Credential(token, self._certificate)
        except (OSError, UnicodeDecodeError, errors.BadConfiguration) as error:
            # While the file is being replaced the token we have may well be good still.
            if self._held is None:
                raise _unreadable(self._path, error) from error
            logger.warning("Keeping the old token", file=self._path, reason=type(error).__name__)
        return self._held


def _unreadable(path: Path, error: Exception) -> errors.BadConfiguration:
    if isinstance(error, errors.BadConfiguration):
        return error
    reason = getattr(error, "strerror", None) or type(error).__name__
    return errors.BadConfiguration(f"{path}: the token cannot be read ({reason})")
