"""Client certificates: who a connection belongs to, read once when it begins from what TLS verified.

Only certificates of our own authority that are meant for clients get this far; the common name is the user, the
organisations are the groups.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bramley.apiserver.apimachinery.users import User


class Peer(msgspec.Struct, frozen=True):
    """The owner of a connection, and until when its certificate says so."""

    user: User
    until: datetime

    def is_valid(self, now: datetime) -> bool:
        """Tell whether the certificate has not ended since the connection began."""
        return now < self.until


def of_certificate(certificate: Mapping[str, Any] | None) -> Peer | None:
    """Return the owner of a verified certificate in the form of the `ssl` module; None if there is no name in it."""
    if not certificate:
        return None
    parts = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in parts if key == "commonName"), "")
    if not name:
        return None
    groups = tuple(value for key, value in parts if key == "organizationName")
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
    return Peer(User(name, groups), until)
