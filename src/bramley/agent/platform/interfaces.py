"""The addresses of the host's network interfaces; the ioctl requests differ between systems."""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_IP_BOUND_IF = 25


def bind_to_interface_of(connection: socket.socket, address: str) -> None:
    """Bind a socket to the interface of a guest's network; needed only on macOS, elsewhere routes suffice."""
    if sys.platform == "darwin":
        name = interface_of(all_interfaces(DARWIN), address)
        if name is not None:
            connection.setsockopt(socket.IPPROTO_IP, _IP_BOUND_IF, socket.if_nametoindex(name))


def interface_of(interfaces: Iterable[Interface], address: str) -> str | None:
    """Return the interface whose network contains an address; the networks of guests are /24."""
    network = address.rpartition(".")[0]
    names = (each.name for each in interfaces if each.address.rpartition(".")[0] == network)
    return next(names, None)


_UP = 0x1
_LOOPBACK = 0x8
# The networks of guests, in which the host is not reachable for other machines.
_GUEST_NETWORKS = ("bridge", "vmnet")
_LINK_LOCAL = "169.254."
_NAME_BYTES = 16


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface."""

    name: str
    flags: int
    address: str


@dataclass(frozen=True, slots=True)
class IoctlRequests:
    """The ioctl requests for an interface's flags and address, and the size of struct ifreq."""

    flags: int
    address: int
    size: int


LINUX = IoctlRequests(flags=0x8913, address=0x8915, size=40)
DARWIN = IoctlRequests(flags=0xC0206911, address=0xC0206921, size=32)


def first_reachable(interfaces: Iterable[Interface]) -> str | None:
    """Return the first address that other machines can reach."""
    return next((each.address for each in interfaces if _is_reachable(each)), None)


def all_interfaces(requests: IoctlRequests) -> Iterator[Interface]:
    """Yield the interfaces that have an IPv4 address, in the system's order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            ifreq = struct.pack(f"{_NAME_BYTES}s{requests.size - _NAME_BYTES}x", name.encode())
            try:
                flags = fcntl.ioctl(any_socket, requests.flags, ifreq)
                address = fcntl.ioctl(any_socket, requests.address, ifreq)
            except OSError:
                # It has no IPv4 address, or was removed meanwhile.
                continue
            yield decode(name, flags=flags, address=address)


def decode(name: str, *, flags: bytes, address: bytes) -> Interface:
    """Parse struct ifreq: the flags follow the name; the address follows family and port."""
    (bits,) = struct.unpack_from("=H", flags, _NAME_BYTES)
    return Interface(name, bits, socket.inet_ntoa(address[_NAME_BYTES + 4 : _NAME_BYTES + 8]))


def _is_reachable(each: Interface) -> bool:
    return (
        bool(each.flags & _UP)
        and not each.flags & _LOOPBACK
        and not each.name.startswith(_GUEST_NETWORKS)
        and not each.address.startswith(_LINK_LOCAL)
    )
