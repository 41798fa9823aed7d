"""The host's own address, by the system's list of network interfaces; the questions have other numbers on each system."""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_IP_BOUND_IF = 25


def towards(connection: socket.socket, address: str) -> None:
    """Make a socket fit to reach a guest at this address; nothing is needed where routes do it."""
    if sys.platform == "darwin":
        name = owning(all_interfaces(DARWIN), address)
        if name is not None:
            connection.setsockopt(socket.IPPROTO_IP, _IP_BOUND_IF, socket.if_nametoindex(name))


def owning(there: Iterable[Interface], address: str) -> str | None:
    """Return the interface in whose network an address is; the networks of guests have 256 addresses."""
    network = address.rpartition(".")[0]
    return next((each.name for each in there if each.address.rpartition(".")[0] == network), None)


_UP = 0x1
_LOOPBACK = 0x8
# Where guests live, not where others reach us.
_GUEST_NETWORKS = ("bridge", "vmnet")
_LINK_LOCAL = "169.254."
_NAME_BYTES = 16


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface as the system tells it."""

    name: str
    flags: int
    address: str


@dataclass(frozen=True, slots=True)
class Questions:
    """The numbers of the calls that tell an interface's flags and address, and the size of what they fill."""

    flags: int
    address: int
    size: int


LINUX = Questions(flags=0x8913, address=0x8915, size=40)
DARWIN = Questions(flags=0xC0206911, address=0xC0206921, size=32)


def reachable(interfaces: Iterable[Interface]) -> str | None:
    """Return the first address that others can reach."""
    return next((each.address for each in interfaces if _is_reachable(each)), None)


def all_interfaces(questions: Questions) -> Iterator[Interface]:
    """Yield the interfaces that have an IPv4 address, in the system's order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            question = struct.pack(f"{_NAME_BYTES}s{questions.size - _NAME_BYTES}x", name.encode())
            try:
                flags = fcntl.ioctl(asking, questions.flags, question)
                address = fcntl.ioctl(asking, questions.address, question)
            except OSError:
                # It has no such address, or was taken away just now.
                continue
            yield decode(name, flags=flags, address=address)


def decode(name: str, *, flags: bytes, address: bytes) -> Interface:
    """Read what the system filled in: flags behind the name, and an address behind family and port."""
    (bits,) = struct.unpack_from("=H", flags, _NAME_BYTES)
    return Interface(name, bits, socket.inet_ntoa(address[_NAME_BYTES + 4 : _NAME_BYTES + 8]))


def _is_reachable(each: Interface) -> bool:
    return (
        bool(each.flags & _UP)
        and not each.flags & _LOOPBACK
        and not each.name.startswith(_GUEST_NETWORKS)
        and not each.address.startswith(_LINK_LOCAL)
    )
