"""A value that must not be seen: it hides from repr, str, format, logs and pickles."""

from __future__ import annotations

import hmac
from typing import NoReturn

HIDDEN = "[hidden]"


class Secret:
    """Holds a text that only `reveal()` gives out."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text; call this only where it leaves for its one destination."""
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
        raise TypeError("a Secret is not pickled or copied out of the process")


class SecretBytes(Secret):
    """Holds bytes that only `reveal_bytes()` gives out, for secrets that are no text."""

    __slots__ = ()

    def __init__(self, value: bytes) -> None:
        # Latin-1 keeps every byte as it is.
        super().__init__(value.decode("latin-1"))

    def reveal_bytes(self) -> bytes:
        """Return the bytes; call this only where they leave for their one destination."""
        return self.reveal().encode("latin-1")


def redact(text: str, *secrets: Secret) -> str:
    """Return the text with every occurrence of these secrets hidden."""
    # The longest first: a secret that begins with another one must not keep its tail.
    for secret in sorted(secrets, key=lambda secret: len(secret.reveal()), reverse=True):
        if secret:
            text = text.replace(secret.reveal(), HIDDEN)
    return text
