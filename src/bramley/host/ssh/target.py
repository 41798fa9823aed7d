"""Where a Mac is reached, as whom, and by which key it is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host.ssh.host_keys import HostKeys, Pin, TrustAgain

DEFAULT_PORT = 22
# How long a Mac may take from power-on to a listening sshd, and how often it is tried meanwhile.
PATIENCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What proves who we are: keys first, then those of an agent, then the password; each is tried once.

    `private_keys` are texts in OpenSSH's or PEM format without a lock; `agent` is the path of an agent's socket. A refused password is not sent a second time over one connection: Macs lock accounts.
    `are_chosen` is false for what nobody named and is only tried because it lies where everybody's does: a locked key and an
    agent that does not answer are then passed over, as `ssh` does.
    """

    private_keys: tuple[Secret, ...] = ()
    agent: str = ""
    password: Secret | None = None
    are_chosen: bool = True

    def __post_init__(self) -> None:
        if not (self.private_keys or self.agent or self.password):
            raise BadConfiguration("no credentials: give a private key, an agent or a password")

    @property
    def told(self) -> str:
        """Return which kinds of credentials these are, for errors."""
        kinds = {"key": self.private_keys, "agent": self.agent, "password": self.password}
        return ", ".join(kind for kind, given in kinds.items() if given)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Return all that must not be seen."""
        return (*self.private_keys, *((self.password,) if self.password else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One Mac behind its SSH server; `through` is a jump host, `host_keys` knows the Mac's key or learns it at first contact."""

    host: str
    user: str
    credentials: Credentials
    port: int = DEFAULT_PORT
    host_keys: HostKeys = field(default_factory=Pin)
    # For a Mac that was reinstalled; None: the known key has to be shown.
    trust_again: TrustAgain | None = None
    through: Target | None = None
    # How people call this Mac; empty: user@host.
    name: str = ""

    @property
    def sends_password(self) -> bool:
        """Tell whether a login may send a password, to this Mac or on the way to it."""
        is_own = self.credentials.password is not None
        return is_own or (self.through is not None and self.through.sends_password)

    @property
    def told(self) -> str:
        """Return how people call this Mac."""
        if self.name:
            return self.name
        port = "" if self.port == DEFAULT_PORT else f":{self.port}"
        return f"{self.user}@{self.host}{port}"
