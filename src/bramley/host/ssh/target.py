"""The address of a Mac, the credentials to log in with, and the host key to expect."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host.ssh.host_keys import AcceptNewHostKey, HostKeys, Pin

DEFAULT_PORT = 22
# How long a Mac may take from power-on until its sshd listens.
CONNECT_TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials, in the order in which they are tried, each once: private keys, the keys of an agent, the password.

    `private_keys` are texts in OpenSSH or PEM format without a passphrase; `agent` is the path of an agent's socket. A rejected
    password is not sent again over the same connection, because Macs lock accounts. `are_explicit` is false for credentials found at
    their default places: then an encrypted key or an agent that does not answer is skipped, as `ssh` does.
    """

    private_keys: tuple[Secret, ...] = ()
    agent: str = ""
    password: Secret | None = None
    are_explicit: bool = True

    def __post_init__(self) -> None:
        if not (self.private_keys or self.agent or self.password):
            raise BadConfiguration("no credentials: give a private key, an agent or a password")

    @property
    def kinds(self) -> str:
        """Return which kinds of credentials these are, for errors."""
        kinds = {"key": self.private_keys, "agent": self.agent, "password": self.password}
        return ", ".join(kind for kind, value in kinds.items() if value)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Return all secrets."""
        return (*self.private_keys, *((self.password,) if self.password else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One Mac behind its SSH server; `jump` is a jump host, `host_keys` holds the Mac's key or learns it at the first connection."""

    host: str
    user: str
    credentials: Credentials
    port: int = DEFAULT_PORT
    host_keys: HostKeys = field(default_factory=Pin)
    # For a Mac that was reinstalled; None: only the known key is accepted.
    accept_new_host_key: AcceptNewHostKey | None = None
    jump: Target | None = None
    # Empty: user@host.
    name: str = ""

    @property
    def sends_password(self) -> bool:
        """Return whether a login may send a password, to this Mac or to its jump host."""
        is_own = self.credentials.password is not None
        return is_own or (self.jump is not None and self.jump.sends_password)

    @property
    def display_name(self) -> str:
        """Return the name of this Mac for progress and errors."""
        if self.name:
            return self.name
        port = "" if self.port == DEFAULT_PORT else f":{self.port}"
        return f"{self.user}@{self.host}{port}"
