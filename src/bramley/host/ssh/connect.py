"""Open an SSH connection to a target, or raise the one error that says why that is impossible.

This module imports the SSH library, so it is imported at the first connection only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncssh

from bramley.base import errors
from bramley.host.ssh.host_keys import HostKey
from bramley.host.ssh.target import Credentials, Target

WRITE_BUFFER_BYTES = 128 * 1024
_LOGIN_TIMEOUT = timedelta(seconds=30)
_CLOSE_TIMEOUT = 5.0
_KEEPALIVE_SECONDS = 15
_KEEPALIVE_COUNT = 4
# The fastest with hardware support come first.
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
)
# Decrypting OpenSSH's format would need another library, and a prompt.
_ENCRYPTED = "is encrypted with a passphrase; load it into an SSH agent with ssh-add"
_UNREADABLE = "cannot be read; it must be a private key in OpenSSH or PEM format"
_ED25519 = "ssh-ed25519"
_ECDSA = ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
_RSA = ("rsa-sha2-512", "rsa-sha2-256")
# The order must not change: a server with several keys would present another one than before.
_HOST_KEY_ALGORITHMS = (_ED25519, *_ECDSA, *_RSA)


class PacedTunnel:
    """Opens a socket, or a channel through a jump host, with flow control that the SSH library lacks.

    The library writes to the socket whatever the peer's window allows, megabytes at a time, even if the network accepts nothing;
    a hundred slow hosts would buffer that much each. Senders of much data call `drain` before each block.
    """

    def __init__(self, jump: Any = None) -> None:
        self._jump = jump
        self._protocol: _PacedProtocol | None = None

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, Any]:
        """Connect; the library calls this on its `tunnel`."""
        connector: Any = self._jump or asyncio.get_running_loop()
        transport, self._protocol = await connector.create_connection(
            lambda: _PacedProtocol(factory()), host, port
        )
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        return transport, self._protocol.inner

    async def drain(self) -> None:
        """Wait until most of the written data has been sent."""
        if self._protocol is not None:
            await self._protocol.writable.wait()


class _PacedProtocol:
    """Forwards everything to the library's protocol and records the flow-control callbacks, which the library ignores."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.writable = asyncio.Event()
        self.writable.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        # Wakes senders, which would otherwise wait for ever.
        self.writable.set()
        self.inner.connection_lost(error)


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """An open connection, and the connection to its jump host."""

    ssh: asyncssh.SSHClientConnection
    tunnel: PacedTunnel
    jump: ClientConnection | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the connection is open, as far as this side knows."""
        return not self.ssh.is_closed()

    async def close(self) -> None:
        """Disconnect."""
        self.ssh.close()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self.ssh.wait_closed()
        # After the connection that runs through it.
        if self.jump is not None:
            await self.jump.close()


class HostKeyClient(asyncssh.SSHClient):
    """Checks the host key that the server presents, before the login; `refusal` is the error of a key that was not accepted."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.refusal: errors.BramleyError | None = None

    def validate_host_public_key(
        self,
        host: str,  # noqa: ARG002 - keys are stored under the target's own name
        addr: str,  # noqa: ARG002 - as above
        port: int,  # noqa: ARG002 - as above
        key: asyncssh.SSHKey,
    ) -> bool:
        """Return whether the key is accepted."""
        try:
            check_host_key(self._target, HostKey.of(key))
        except errors.BramleyError as error:
            # The library would replace any error by its own; `_connect` raises this one.
            self.refusal = error
        return self.refusal is None


def check_host_key(target: Target, presented: HostKey) -> None:
    """Store the first key that a host presents; HostKeyChanged if it presents another one than before."""
    if target.accept_new_host_key is not None:
        target.accept_new_host_key.remove_old_key(target.host_keys, target.host, target.port)
    known = target.host_keys.keys_of(target.host, target.port)
    if not known:
        target.host_keys.add(target.host, target.port, presented)
    elif not any(presented.is_same(key) for key in known):
        raise errors.HostKeyChanged(
            f"{target.display_name}: the host key has changed; nothing was sent. It is {presented}; the known key is {known[0]}. "
            "If this Mac was reinstalled, compare the key with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on its console, "
            f"then {target.host_keys.advice(target.host, target.port)} and connect again; otherwise this may be an attack"
        )


async def connect(target: Target) -> ClientConnection:
    """Connect and log in, through the jump host if there is one."""
    async with contextlib.AsyncExitStack() as cleanup:
        jump = await connect(target.jump) if target.jump is not None else None
        if jump is not None:
            cleanup.push_async_callback(jump.close)
        tunnel = PacedTunnel(jump.ssh if jump is not None else None)
        try:
            async with asyncio.timeout(_LOGIN_TIMEOUT.total_seconds()):
                connection = ClientConnection(await _connect(target, tunnel), tunnel, jump)
        except TimeoutError as error:
            reason = f"no answer within {_LOGIN_TIMEOUT.total_seconds():g} s"
            raise errors.HostUnreachable(f"{target.display_name}: {reason}") from error
        # From here on the caller closes the connection.
        cleanup.pop_all()
        return connection


async def _connect(target: Target, tunnel: PacedTunnel) -> asyncssh.SSHClientConnection:
    # The library logs every command line at INFO, that is whole scripts.
    asyncssh.set_log_level("WARNING")
    client = HostKeyClient(target)
    try:
        async with _keys(target.display_name, target.credentials) as keys:
            return await asyncssh.connect(
                target.host,
                target.port,
                tunnel=tunnel,
                client_factory=lambda: client,
                options=asyncssh.SSHClientConnectionOptions(**_options(target, keys)),
            )
    except (OSError, asyncssh.Error) as error:
        # Without the library's error as the cause: no data of a handshake belongs in a crash report.
        raise client.refusal or _connect_error(target, error) from None


def _options(target: Target, keys: Sequence[object]) -> dict[str, Any]:
    """Return all options that the library would otherwise take from this machine's configuration."""
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
        # Empty: HostKeyClient checks the key against the target's host keys.
        "known_hosts": ([], [], []),
        "x509_trusted_certs": None,
        "server_host_key_algs": host_key_order(target),
        "encryption_algs": _CIPHERS,
        "compression_algs": ("none",),
        "keepalive_interval": _KEEPALIVE_SECONDS,
        "keepalive_count_max": _KEEPALIVE_COUNT,
        "connect_timeout": _LOGIN_TIMEOUT.total_seconds(),
        "login_timeout": _LOGIN_TIMEOUT.total_seconds(),
    }


def host_key_order(target: Target) -> list[str]:
    """Return the host key algorithms to request: those of known keys first."""
    # A server with keys of several algorithms would otherwise present another one, which would count as changed.
    known = target.host_keys.keys_of(target.host, target.port)
    preferred = [
        name for key in known for name in (_RSA if key.algorithm == "ssh-rsa" else (key.algorithm,))
    ]
    supported = (name for name in preferred if name in _HOST_KEY_ALGORITHMS)
    return list(dict.fromkeys((*supported, *_HOST_KEY_ALGORITHMS)))


@contextlib.asynccontextmanager
async def _keys(context: str, credentials: Credentials) -> AsyncIterator[list[object]]:
    """Yield the keys to log in with; the connection to an agent stays open meanwhile."""
    keys = _private_keys(context, credentials)
    if not credentials.agent:
        yield keys
        return
    try:
        agent = await asyncssh.connect_agent(credentials.agent)
    except OSError as error:
        if not credentials.are_explicit and (keys or credentials.password):
            yield keys
            return
        raise errors.BadConfiguration(
            f"{context}: the SSH agent at {credentials.agent} does not answer: {error.strerror or error}"
        ) from error
    try:
        yield [*keys, *await agent.get_keys()]
    finally:
        agent.close()
        await agent.wait_closed()


def _private_keys(context: str, credentials: Credentials) -> list[object]:
    """Return the usable keys; an unusable one is an error if it was given explicitly or there is nothing else to try."""
    keys: list[object] = []
    unusable: list[errors.BadConfiguration] = []
    for text in credentials.private_keys:
        try:
            keys.append(_private_key(context, text.reveal()))
        except errors.BadConfiguration as error:
            unusable.append(error)
    has_others = bool(keys or credentials.agent or credentials.password)
    if unusable and (credentials.are_explicit or not has_others):
        raise unusable[0]
    return keys


def _private_key(context: str, text: str) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_private_key(text)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
        is_encrypted = "passphrase" in str(error).lower() or isinstance(
            error, asyncssh.KeyEncryptionError
        )
    # Outside of the handler: the library's error may contain the key.
    problem = _ENCRYPTED if is_encrypted else _UNREADABLE
    raise errors.BadConfiguration(f"{context}: the private key {problem}")


def _connect_error(target: Target, error: Exception) -> errors.BramleyError:
    # After too many attempts OpenSSH disconnects with a text and without a specific code.
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in str(error):
        return errors.LoginRefused(
            f"{target.display_name}: no credential was accepted ({target.credentials.kinds}); "
            "check the user, the key in ~/.ssh/authorized_keys and the password"
        )
    # Resolver errors have negative numbers, which are not errno values.
    number = getattr(error, "errno", None) or 0
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = os.strerror(number) if number > 0 else text
    return errors.HostUnreachable(f"{target.display_name}: no SSH connection: {reason}")
