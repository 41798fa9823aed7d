"""Canaries: a unique value for each secret, and a search for them in output and files.

A canary is also found in base64, at any offset, and in the reversible cipher of /etc/kcpassword.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from bramley.base.secret import Secret
from bramley.host import kcpassword
from bramley.host.commands import Command, Run, Write
from bramley.host.rendering.script import content_of


def canary(name: str) -> Secret:
    """Return a new canary; its name is shown by a failing test."""
    return Secret(f"canary-{name}-{secrets.token_hex(8)}")


@dataclass(frozen=True)
class Canaries:
    """A canary for each secret of a bootstrap, and one as a wrong password."""

    password: Secret = field(default_factory=lambda: canary("password"))
    wrong_password: Secret = field(default_factory=lambda: canary("wrong"))
    registry_password: Secret = field(default_factory=lambda: canary("registry"))
    token: Secret = field(default_factory=lambda: canary("token"))
    auth_key: Secret = field(default_factory=lambda: Secret(f"tskey-auth-{secrets.token_hex(8)}"))
    runner_token: Secret = field(default_factory=lambda: canary("runner"))
    # Set from a generated key.
    private_key: Secret = field(default_factory=lambda: canary("key"))

    @property
    def registry_credentials(self) -> Secret:
        """Return registry credentials with the canary as the password, in base64 as Docker writes it."""
        login = base64.b64encode(f"bot:{self.registry_password.reveal()}".encode()).decode()
        return Secret(f'{{"auths": {{"ghcr.io": {{"auth": "{login}"}}}}}}')

    def seen_in(self, *texts: str | bytes) -> list[str]:
        """Return the names of the canaries that these texts reveal."""
        found = []
        for text in texts:
            plain = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
            found += [name for name, form in self._forms() if form in plain]
        return found

    def sent_by(self, command: Command) -> list[str]:
        """Return the names of the canaries that a command sends to the Mac."""
        return self.seen_in(*contents_of(command))

    def _forms(self) -> Iterator[tuple[str, bytes]]:
        for name in self.__dataclass_fields__:
            secret: Secret = getattr(self, name)
            plain = secret.reveal().encode()
            yield name, plain
            yield from ((f"{name} in base64", form) for form in _in_base64(plain))
            ciphered = kcpassword.encode(Secret(secret.reveal()[:40]))[: len(plain[:40])]
            yield f"{name} as kcpassword", ciphered
            yield from ((f"{name} as kcpassword in base64", form) for form in _in_base64(ciphered))


def _in_base64(plain: bytes) -> Iterator[bytes]:
    """Yield what the base64 form of any text with these bytes contains, for each of the three alignments."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + plain)
        # The first characters also encode bytes before, the last ones bytes after.
        yield whole[4 if before else 0 : -4]


def contents_of(command: Command) -> list[bytes]:
    """Return the input, content and password of a command."""
    match command:
        case Run():
            given = [content_of(command.stdin)]
        case Write():
            given = [content_of(command.content)]
        case _:
            return []
    return given + ([content_of(command.sudo_password)] if command.sudo_password else [])
