"""Connections towards guests: macOS finds the way to their network only from a socket that is bound to its interface."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable

from bramley.agent.platform import interfaces
from bramley.agent.platform.interfaces import Interface

_IP_BOUND_IF = 25


def towards(connection: socket.socket, address: str) -> None:
    """Make a socket fit to reach a guest at this address; nothing is needed where routes do it."""
    if sys.platform == "darwin":
        name = owning(interfaces.all_interfaces(interfaces.DARWIN), address)
        if name is not None:
            connection.setsockopt(socket.IPPROTO_IP, _IP_BOUND_IF, socket.if_nametoindex(name))


def owning(there: Iterable[Interface], address: str) -> str | None:
    """Return the interface in whose network an address is; the networks of guests have 256 addresses."""
    network = address.rpartition(".")[0]
    return next((each.name for each in there if each.address.rpartition(".")[0] == network), None)
