"""What a token says of itself: the middle of a JWT, read and not verified, which is for those who take the token."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

Claims = TypeVar("Claims")
_PARTS = 3


def read(token: str, kind: type[Claims]) -> Claims | None:
    """Return a token's claims as this kind; None if it is no token that says as much."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=kind)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None
