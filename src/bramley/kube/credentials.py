"""Credentials: static ones, tokens in files that are renewed from outside, and reloaded kubeconfigs.

A transport gets the current credential before each request, so that a changed token is used from then on, and once more after
the server rejected one. `exec_plugin` has the credentials that a program issues.
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
    """The credential of one request: an Authorization header, a client certificate, both or neither."""

    authorization: Secret | None = None
    certificate: ClientCertificate | None = None


class Credentials(Protocol):
    """Provides the current credential."""

    async def current(self) -> Credential:
        """Return the credential to use now."""
        ...

    async def refused(self, credential: Credential) -> bool:
        """Handle that the server rejected this credential; return whether there is another one to try."""
        ...


def bearer(token: str, source: str) -> Secret:
    """Return the header value for a token; an invalid one is refused without showing it."""
    text = token.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise errors.BadConfiguration(
            f"{source}: does not contain a valid token; put one there on one line"
        )
    return Secret(f"Bearer {text}")


def basic(username: str, password: Secret) -> Secret:
    """Return the header value for a user name and password."""
    pair = base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()
    return Secret(f"Basic {pair}")


def as_secret(expected_type: type, value: Any) -> Any:
    """Convert strings to Secret fields, as a msgspec hook."""
    if expected_type is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError("Expected `str`")


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """A credential that never changes."""

    credential: Credential = Credential()

    async def current(self) -> Credential:
        """Return the credential."""
        return self.credential

    async def refused(self, credential: Credential) -> bool:
        """Return False: there is no other one."""
        return credential != self.credential


class ReloadingCredentials:
    """Credentials from a configuration that may be rewritten, such as a kubeconfig with a new token."""

    def __init__(self, credentials: Credentials, read: Callable[[], Credentials]) -> None:
        self._held = credentials
        self._read = read

    async def current(self) -> Credential:
        """Return the credential of the configuration as last read."""
        return await self._held.current()

    async def refused(self, credential: Credential) -> bool:
        """Read the configuration again; return whether it has another credential."""
        # A concurrent request may have reloaded the configuration already.
        if await self._held.refused(credential):
            return True
        try:
            fresh = self._read()
            credential_now = await fresh.current()
        except errors.BadConfiguration as error:
            # The file may be being written at this moment.
            logger.warning("Keeping old credentials: configuration is unreadable", error=str(error))
            return False
        self._held = fresh
        return credential_now != credential


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
        """Read the file again; return whether it has another token."""
        return self._read() != credential

    def _age(self) -> float:
        return self._clock.monotonic() - self._read_at

    def _read(self) -> Credential:
        # Also when reading fails: a missing file must not be opened for each request.
        self._read_at = self._clock.monotonic()
        try:
            token = bearer(self._path.read_text(), str(self._path))
            self._held = Credential(token, self._certificate)
        except (OSError, UnicodeDecodeError, errors.BadConfiguration) as error:
            # While the file is being replaced, the previous token may still be valid.
            if self._held is None:
                raise _unreadable(self._path, error) from error
            logger.warning(
                "Keeping old token: token file is unreadable",
                file=self._path,
                reason=type(error).__name__,
            )
        return self._held


def _unreadable(path: Path, error: Exception) -> errors.BadConfiguration:
    if isinstance(error, errors.BadConfiguration):
        return error
    reason = getattr(error, "strerror", None) or type(error).__name__
    return errors.BadConfiguration(f"{path}: the token cannot be read ({reason})")
