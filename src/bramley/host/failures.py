"""What people are told of a command that failed: the host, its purpose, the code, and the end of what it said without secrets."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

from bramley.base.errors import CommandFailed
from bramley.base.secret import Secret, SecretBytes, redact
from bramley.host.commands import Command, Run, Write

_LONGEST = 600
# Shorter pieces of a secret are words of any text.
_SHORTEST_PIECE = 6
_NO_SUDO = "sudo: a password is required"


def failed(told: str, code: int, said: bytes, *, secrets: Iterable[Secret]) -> CommandFailed:
    """Return the error of a command that ended with a code it must not have."""
    end = shown(said, secrets=secrets) or "it said nothing"
    if _NO_SUDO in end:
        end += "; the step sudo must come first, with the password of this user"
    return CommandFailed(f"{told}: failed with code {code}: {end}")


def shown(said: bytes, *, secrets: Iterable[Secret]) -> str:
    """Return the end of what a program said, in one line, with nothing in it that must not be seen."""
    text = redact(said.decode("utf-8", "replace"), *set(_all_forms(secrets)))
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    line = " ".join(words)
    return line if len(line) <= _LONGEST else "…" + line[-_LONGEST:]


def secrets_of(command: Command) -> tuple[Secret, ...]:
    """Return everything of a command that must not be seen, its input and content included."""
    match command:
        case Run():
            given = (_secret(command.stdin),)
        case Write():
            given = (_secret(command.content),)
        case _:
            return ()
    password = (command.sudo_password,) if command.sudo_password else ()
    return (*given, *password)


def _secret(content: bytes | Secret) -> Secret:
    return content if isinstance(content, Secret) else Secret(content.decode("utf-8", "replace"))


def _sent(secret: Secret) -> bytes:
    if isinstance(secret, SecretBytes):
        return secret.reveal_bytes()
    return secret.reveal().encode("utf-8", "surrogatepass")


def _all_forms(secrets: Iterable[Secret]) -> Iterator[Secret]:
    """Yield the secrets, their lines and their form on the line: the end of a text may hold but a part of one."""
    for secret in secrets:
        text = secret.reveal()
        yield secret
        yield Secret(base64.b64encode(_sent(secret)).decode())
        for line in text.splitlines():
            if len(line.strip()) >= _SHORTEST_PIECE:
                yield Secret(line.strip())
