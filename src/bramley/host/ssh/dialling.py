"""From a target to an open SSH connection, or to the one error that says why there is none.

A Mac that does not answer yet is waited for; a changed host key and refused credentials are told at once, since waiting helps
neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.host.ssh.target import Credentials, Target
from bramley.host.ssh.wire import Wire

if TYPE_CHECKING:
    import asyncssh

logger = log.get(__name__)
T = TypeVar("T")

EVERY = timedelta(seconds=10)
_WITHIN = timedelta(seconds=30)
_CLOSED_WITHIN = 5.0
_KEEP_ALIVE = 15
_SILENCES = 4
# What machines encrypt fastest, first.
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
)
# Agents open every lock; for OpenSSH's own we would need another library, and somebody to ask.
_LOCKED = "is locked by a passphrase; load it into an SSH agent with ssh-add"
_UNREADABLE = "cannot be read; it must be a private key in OpenSSH's or PEM format"
_ED25519 = "ssh-ed25519"
_ECDSA = ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
_RSA = ("rsa-sha2-512", "rsa-sha2-256")
# In an order that never changes, else a server with several keys would show another one than before.
_HOST_KEYS = (_ED25519, *_ECDSA, *_RSA)


@dataclass(frozen=True, slots=True)
class Line:
    """An open connection, and the one to the jump host that it goes through."""

    ssh: asyncssh.SSHClientConnection
    wire: Wire
    under: Line | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether commands can go over it, as far as this side knows."""
        return not self.ssh.is_closed()

    async def close(self) -> None:
        """Hang up."""
        self.ssh.close()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_CLOSED_WITHIN):
                await self.ssh.wait_closed()
        if self.under is not None:
            await self.under.close()


async def until_there(
    dial: Callable[[], Awaitable[T]], *, told: str, clock: Clock, patience: timedelta
) -> T:
    """Dial until somebody answers; HostUnreachable with the last reason if nobody does in time."""
    until = clock.monotonic() + patience.total_seconds()
    while True:
        try:
            return await dial()
        except errors.HostUnreachable as error:
            if clock.monotonic() + EVERY.total_seconds() > until:
                if not patience:
                    raise
                reason = str(error).removeprefix(f"{told}: ")
                raise errors.HostUnreachable(
                    f"{told}: SSH is not available after {patience.total_seconds():g} s; at last: {reason}"
                ) from error
            logger.info("Waiting for SSH", host=told, reason=str(error))
        await asyncio.sleep(EVERY.total_seconds())


async def dial(target: Target) -> Line:
    """Connect and log in, through the jump host if there is one."""
    async with contextlib.AsyncExitStack() as hung_up:
        under = await dial(target.through) if target.through is not None else None
        if under is not None:
            hung_up.push_async_callback(under.close)
        wire = Wire(under.ssh if under is not None else None)
        try:
            async with asyncio.timeout(_WITHIN.total_seconds()):
                line = Line(await _connect(target, wire), wire, under)
        except TimeoutError as error:
            reason = f"{target.told}: no answer within {_WITHIN.total_seconds():g} s"
            raise errors.HostUnreachable(reason) from error
        # From now on whoever has the line hangs up.
        hung_up.pop_all()
        return line


async def _connect(target: Target, wire: Wire) -> asyncssh.SSHClientConnection:
    import asyncssh

    from bramley.host.ssh.client import Client

    # It writes every command line into the log, and nobody needs to read scripts there.
    asyncssh.set_log_level("WARNING")
    client = Client(target)
    try:
        async with _keys(target.told, target.credentials) as keys:
            ssh = await asyncssh.connect(
                target.host,
                target.port,
                tunnel=wire,
                client_factory=lambda: client,
                options=asyncssh.SSHClientConnectionOptions(**_options(target, keys)),
            )
    except (OSError, asyncssh.Error) as error:
        # Without the library's own error as the cause: nothing of a handshake belongs into a crash report.
        raise client.refused or _reason(target, error) from None
    return ssh


def _options(target: Target, keys: Sequence[object]) -> dict[str, Any]:
    """Return everything that the library would else take from this machine's own settings."""
    password = target.credentials.password
    return {
        "config": None,
        "username": target.user,
        "client_keys": list(keys) or None,
        "agent_path": None,
        "password": password.reveal() if password else None,
        "preferred_auth": ("publickey", "password", "keyboard-interactive"),
        "gss_kex": False,
        "gss_auth": False,
        # Nobody is known by a file here: the client asks the target's host keys.
        "known_hosts": ([], [], []),
        "x509_trusted_certs": None,
        "server_host_key_algs": host_key_order(target),
        "encryption_algs": _CIPHERS,
        "compression_algs": ("none",),
        "keepalive_interval": _KEEP_ALIVE,
        "keepalive_count_max": _SILENCES,
        "connect_timeout": _WITHIN.total_seconds(),
        "login_timeout": _WITHIN.total_seconds(),
    }


def host_key_order(target: Target) -> list[str]:
    """Return the kinds of host keys to ask for: first those that are known of the host."""
    known = target.host_keys.known(target.host, target.port)
    kinds = [
        kind for key in known for kind in (_RSA if key.algorithm == "ssh-rsa" else (key.algorithm,))
    ]
    return list(dict.fromkeys(kind for kind in (*kinds, *_HOST_KEYS) if kind in _HOST_KEYS))


@contextlib.asynccontextmanager
async def _keys(told: str, credentials: Credentials) -> AsyncIterator[list[object]]:
    """Give out the keys to log in with; an agent is asked as long as they are needed."""
    import asyncssh

    keys = _private_keys(told, credentials)
    if not credentials.agent:
        yield keys
        return
    try:
        agent = await asyncssh.connect_agent(credentials.agent)
    except OSError as error:
        if not credentials.are_chosen and (keys or credentials.password):
            yield keys
            return
        raise errors.BadConfiguration(
            f"{told}: the SSH agent at {credentials.agent} does not answer: {error.strerror or error}"
        ) from error
    try:
        yield [*keys, *await agent.get_keys()]
    finally:
        agent.close()
        await agent.wait_closed()


def _private_keys(told: str, credentials: Credentials) -> list[object]:
    """Return the keys that can be used; one that cannot is told, unless nobody chose it and there is something else to try."""
    found: list[object] = []
    unusable: list[errors.BadConfiguration] = []
    for text in credentials.private_keys:
        try:
            found.append(_private_key(told, text.reveal()))
        except errors.BadConfiguration as error:
            unusable.append(error)
    is_alone = not (found or credentials.agent or credentials.password)
    if unusable and (credentials.are_chosen or is_alone):
        raise unusable[0]
    return found


def _private_key(told: str, text: str) -> asyncssh.SSHKey:
    import asyncssh

    try:
        return asyncssh.import_private_key(text)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
        is_locked = "passphrase" in str(error).lower() or isinstance(
            error, asyncssh.KeyEncryptionError
        )
    raise errors.BadConfiguration(
        f"{told}: the private key {_LOCKED if is_locked else _UNREADABLE}"
    )


def _reason(target: Target, error: Exception) -> errors.BramleyError:
    import asyncssh

    # OpenSSH hangs up on those who have tried too often, with a text and no code of its own.
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in str(error):
        return errors.LoginRefused(
            f"{target.told}: nothing of what was given was accepted ({target.credentials.told}); "
            "look whether the user, the key in ~/.ssh/authorized_keys or the password is right"
        )
    # A name that cannot be resolved has a number below zero, which is none of the kernel's.
    number = getattr(error, "errno", None) or 0
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = os.strerror(number) if number > 0 else said
    return errors.HostUnreachable(f"{target.told}: no SSH connection: {reason}")
