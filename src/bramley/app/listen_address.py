"""Listening addresses: parsed from `host:port` and bound early, so that a port in use is reported before anything starts."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass

from bramley.base.errors import BadConfiguration

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 requests a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `127.0.0.1:6443`, `localhost:0` or `[::1]:6443`."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        plain = bare != host or ":" not in host
        if not (colon and bare and plain and port.isascii() and port.isdigit()):
            raise BadConfiguration(
                f"--listen {text!r} is not host:port; write it like 127.0.0.1:6443"
            )
        if int(port) > 65535:
            raise BadConfiguration(f"--listen {text!r}: {port} is not a port; choose 0 to 65535")
        return cls(bare, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the URL of the server for clients on this machine."""
        loopback = Address(ANY_ADDRESS.get(self.host, self.host), self.port)
        return f"https://{loopback}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine; names other than localhost are not resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(address: Address) -> socket.socket:
    """Return a listening socket; BadConfiguration if the address cannot be used."""
    try:
        candidates = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise BadConfiguration(
            f"the host of --listen {address} cannot be resolved; use an address of this machine such as 127.0.0.1"
        ) from error
    family, _, _, _, socket_address = candidates[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Otherwise connections of the last process in TIME_WAIT would block a restart.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(socket_address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise BadConfiguration(_bind_error(address, error)) from error
    bound.setblocking(False)
    return bound


def bound_address(address: Address, bound: socket.socket) -> Address:
    """Return the address with the actual port of the socket."""
    return Address(address.host, bound.getsockname()[1])


def _bind_error(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use by another program; stop that program, or choose another address with --listen "
            "(port 0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"listening on {address} is not permitted to this user; choose a port above 1023 with --listen"
    return (
        f"{address} cannot be listened on: {error.strerror}; choose another address with --listen"
    )
