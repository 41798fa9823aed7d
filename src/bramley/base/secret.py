"""A secret value, hidden from repr, str, format, logs and pickles."""

from __future__ import annotations

import hmac
from typing import NoReturn

HIDDEN = "[hidden]"


class Secret:
    """A secret string; only `reveal()` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the string; call this only where it is sent to its destination."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")


class SecretBytes(Secret):
    """Secret bytes; only `reveal_bytes()` returns them."""

    __slots__ = ()

    def __init__(self, value: bytes) -> None:
        # Latin-1 keeps every byte as it is.
        super().__init__(value.decode("latin-1"))

    def reveal_bytes(self) -> bytes:
        """Return the bytes; call this only where they are sent to their destination."""
        return self.reveal().encode("latin-1")


def redact(text: str, *secrets: Secret) -> str:
    """Return the text with every occurrence of these secrets hidden."""
    # The longest first: otherwise the tail of a secret that begins with another one would remain.
    for secret in sorted(secrets, key=lambda secret: len(secret.reveal()), reverse=True):
        if secret:
            text = text.replace(secret.reveal(), HIDDEN)
    return text
