"""Where a server is, whom to trust there and who we are: what a kubeconfig or a Pod's own files come down to."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bramley.base import errors
from bramley.kube.credentials import Credentials, Fixed
from bramley.kube.tls import Trust


@dataclass(frozen=True, slots=True)
class Access:
    """All that the HTTP transport needs to know about one server."""

    server: str
    trust: Trust = field(default_factory=Trust)
    credentials: Credentials = field(default_factory=Fixed)
    headers: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    compression: bool = True
    namespace: str = "default"


def checked_url(text: str, source: str) -> str:
    """Return the address of a server or proxy, or say why it is none; it is not shown, for it may hold a password."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise errors.BadConfiguration(f"{source}: is no address; write it as https://host:port")
    if parts.username or parts.password:
        raise errors.BadConfiguration(
            f"{source}: holds a user name or password; name a user in the context instead"
        )
    if parts.query or parts.fragment:
        raise errors.BadConfiguration(f"{source}: holds a query or fragment; leave it out")
    return text.rstrip("/")
