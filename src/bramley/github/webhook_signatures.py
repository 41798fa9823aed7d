"""The signature of a webhook: HMAC-SHA256 over the raw body, in the header `X-Hub-Signature-256`."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence

from bramley.base.secret import Secret

HEADER = "X-Hub-Signature-256"
_FORM = re.compile(r"sha256=[0-9a-f]{64}")


def signature(body: bytes, secret: Secret) -> str:
    """Return the value of the header for this body."""
    return "sha256=" + hmac.digest(secret.reveal().encode(), body, "sha256").hex()


def is_valid(body: bytes, header: str | None, secrets: Sequence[Secret]) -> bool:
    """Return whether one of the secrets signed this body; there are two while a secret is rotated.

    False without a header and without a secret. The duration depends neither on the signature nor on which secret matches.
    """
    if header is None or _FORM.fullmatch(header) is None:
        return False
    # All of them are compared, and an empty secret, with which anybody could sign, never matches.
    matches = [hmac.compare_digest(signature(body, secret), header) for secret in secrets if secret]
    return any(matches)
