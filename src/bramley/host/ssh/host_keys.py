"""Who a Mac is: its host key, trusted at first contact and required ever after.

A key is learned as soon as it is shown, before anybody logs in, so it is known to the caller even if a later step fails. A
changed key ends the connection before anything is sent; `forget` is the way to trust again after a reinstall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bramley.base.errors import BadConfiguration

_FINGERPRINT = "SHA256:"


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host key as it is shown: its algorithm, fingerprint, and the whole public key in base64 where it is known."""

    algorithm: str
    fingerprint: str
    public: str = ""

    def __str__(self) -> str:
        return f"{self.algorithm} {self.fingerprint}".strip()

    def is_same(self, other: HostKey) -> bool:
        """Tell whether both are one key; a pin without an algorithm stands for any."""
        return self.fingerprint == other.fingerprint


class HostKeys(Protocol):
    """What is known of hosts' keys."""

    def known(self, host: str, port: int) -> Sequence[HostKey]:
        """Return the keys that a host may show; none before first contact."""
        ...

    def learn(self, host: str, port: int, key: HostKey) -> None:
        """Trust the key that a host shows at first contact."""
        ...

    def forget(self, host: str, port: int) -> None:
        """Trust whatever the host shows next, as at first contact."""
        ...

    def advice(self, host: str, port: int) -> str:
        """Return how people forget the key, for the error that says it changed."""
        ...


@dataclass(slots=True)
class TrustAgain:
    """Let the key that is known of a host be forgotten, once, and not before the host shows one: who does not answer keeps it."""

    is_due: bool = True

    def forget(self, keys: HostKeys, host: str, port: int) -> None:
        """Forget the key that was known when another one is shown for the first time."""
        if self.is_due:
            keys.forget(host, port)
        self.is_due = False


class Pin:
    """The key of one host, kept by the caller as text such as `ssh-ed25519 SHA256:…`, for example in a Secret.

    `text` is what to keep; read it also after a failure, since it is there from first contact on.
    """

    def __init__(self, text: str = "", *, kept_in: str = "the place that keeps its pin") -> None:
        self._key = parse_pin(text)
        self._kept_in = kept_in

    @property
    def text(self) -> str:
        """Return the pin to keep; empty before first contact."""
        return str(self._key) if self._key else ""

    def known(self, host: str, port: int) -> Sequence[HostKey]:  # noqa: ARG002 - it is of one host
        """Return the pinned key."""
        return (self._key,) if self._key else ()

    def learn(self, host: str, port: int, key: HostKey) -> None:  # noqa: ARG002 - as above
        """Pin a key."""
        self._key = key

    def forget(self, host: str, port: int) -> None:  # noqa: ARG002 - as above
        """Drop the pin."""
        self._key = None

    def advice(self, host: str, port: int) -> str:  # noqa: ARG002 - as above
        """Return how people drop the pin."""
        return f"remove the old key from {self._kept_in}"


def parse_pin(text: str) -> HostKey | None:
    """Return the key that a pin stands for: `SHA256:…`, with or without its algorithm before it; None for an empty one."""
    words = text.split()
    if not words:
        return None
    if len(words) > 2 or not words[-1].startswith(_FINGERPRINT):
        raise BadConfiguration(
            "the pinned host key is not of the form `ssh-ed25519 SHA256:…`; "
            "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the Mac shows it"
        )
    return HostKey(words[0] if len(words) == 2 else "", words[-1])
