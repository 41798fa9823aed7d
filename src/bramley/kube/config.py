"""The client configuration: address of a server, trusted certificates and credentials (client-go's `rest.Config`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bramley.base import errors
from bramley.kube.credentials import Credentials, StaticCredentials
from bramley.kube.tls import Trust


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What the HTTP transport needs to know about one server."""

    server: str
    trust: Trust = field(default_factory=Trust)
    credentials: Credentials = field(default_factory=StaticCredentials)
    headers: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    compression: bool = True
    namespace: str = "default"


def checked_url(text: str, source: str) -> str:
    """Return the URL of a server or proxy without a trailing slash; errors do not show it, for it may hold a password."""
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise errors.BadConfiguration(f"{source}: is not a URL; write it as https://host:port")
    if parts.username or parts.password:
        raise errors.BadConfiguration(
            f"{source}: contains a user name or password; name a user in the context instead"
        )
    if parts.query or parts.fragment:
        raise errors.BadConfiguration(f"{source}: contains a query or fragment; leave it out")
    return text.rstrip("/")
