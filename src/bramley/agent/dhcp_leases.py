"""The leases of macOS' own DHCP server, from which VMs get their addresses: how many are in use, and how many there are.

Each VM has a new MAC address and takes a lease, which stays in use until it expires, whether or not the VM still exists. When all
are in use, no further VM gets an address. The file is written by a system service and may be read at any moment of that.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bramley.base.clock import Clock

# The addresses of a vmnet network, which is a /24: neither those of the network, the host and broadcasts.
POOL_SIZE = 253
# Much more than the leases of all networks of vmnet take.
_MAX_BYTES = 1024 * 1024
_BLOCK = re.compile(r"\{([^{}]*)\}")
_EXPIRY = re.compile(r"0x([0-9a-fA-F]{1,16})")


@dataclass(frozen=True, slots=True)
class LeaseUsage:
    """The leases of the fullest network: how many are in use, of how many; `network` is empty without any."""

    used: int = 0
    size: int = POOL_SIZE
    network: str = ""

    @property
    def is_full(self) -> bool:
        """Return whether no address is left."""
        return self.used >= self.size


@dataclass(frozen=True, slots=True)
class DhcpLeases:
    """The lease file of this host."""

    file: Path
    clock: Clock

    def usage(self) -> LeaseUsage:
        """Return the leases in use; none if there is no file yet. OSError if it cannot be read."""
        try:
            text = _read(self.file)
        except FileNotFoundError:
            return LeaseUsage()
        now = self.clock.now().timestamp()
        networks: dict[str, set[str]] = defaultdict(set)
        for address in _addresses_in_use(text, now):
            networks[address.rpartition(".")[0]].add(address)
        if not networks:
            return LeaseUsage()
        fullest, addresses = max(networks.items(), key=lambda each: len(each[1]))
        return LeaseUsage(len(addresses), network=f"{fullest}.0/24")


def _read(path: Path) -> str:
    # Without waiting: opening a pipe would block the agent.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(_MAX_BYTES).decode("ascii", errors="replace")
    finally:
        os.close(handle)


def _addresses_in_use(text: str, now: float) -> Iterator[str]:
    """Yield the addresses of leases that have not expired; an entry that is incomplete or invalid is skipped."""
    for block in _BLOCK.findall(text):
        lines = (line.strip().partition("=") for line in block.splitlines())
        fields = {key: value for key, equals, value in lines if equals}
        expiry = _EXPIRY.fullmatch(fields.get("lease", ""))
        if expiry is None or int(expiry[1], 16) <= now:
            continue
        try:
            yield str(ipaddress.IPv4Address(fields.get("ip_address", "")))
        except ValueError:
            continue
