"""The claims of a JWT, decoded without verifying the signature; that is up to the server that accepts the token."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

Claims = TypeVar("Claims")
_JWT_PARTS = 3


def decode(token: str, kind: type[Claims]) -> Claims | None:
    """Return a token's claims as this type; None if it is not a JWT with such claims."""
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=kind)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None
