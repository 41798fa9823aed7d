"""The DHCP server of the virtual network: one address per MAC, leased for a day whether or not the guest still runs.

A guest renews its lease after half of that time. With all addresses leased, it requests one again and again until one is free.

The file has the form of macOS' own, in which octets of a MAC have no leading zero.
"""

import os
from collections.abc import Generator
from typing import Any, NamedTuple

from bramley.sim.tart.effects import Effect, Flock, Unflock
from bramley.sim.tart.settings import Context

# In the folder of the simulation: the lease time in the preferences of the Mac, if there is one; only the Mac's root can read those.
LEASE_SECONDS = "lease-seconds"

_FIRST, _LAST = 2, 254


class Lease(NamedTuple):
    """One entry; `until` in seconds since the epoch."""

    address: str
    mac: str
    until: int


def path(context: Context) -> str:
    """Return the lease file."""
    return str(context.settings.host["leases"] or os.path.join(context.hidden, "dhcpd_leases"))


def read(context: Context) -> list[Lease]:
    """Return all leases, the newest last."""
    try:
        with open(path(context), encoding="utf-8") as file:
            blocks = file.read().split("}")
    except FileNotFoundError:
        return []
    leases = []
    for block in blocks:
        fields = dict(line.strip().split("=", 1) for line in block.splitlines() if "=" in line)
        if {"ip_address", "hw_address", "lease"} <= set(fields):
            mac = _padded(fields["hw_address"].partition(",")[2])
            leases.append(Lease(fields["ip_address"], mac, int(fields["lease"], 16)))
    return leases


def _padded(mac: str) -> str:
    return ":".join(f"{int(octet, 16):02x}" for octet in mac.split(":"))


def _unpadded(mac: str) -> str:
    return ":".join(f"{int(octet, 16):x}" for octet in mac.split(":"))


def address(context: Context, mac: str, *, only_valid: bool = True) -> str | None:
    """Return the newest address of a MAC."""
    candidates = [lease for lease in read(context) if lease.mac == mac]
    if only_valid:
        candidates = [lease for lease in candidates if lease.until > context.now()]
    return max(candidates, key=lambda lease: lease.until).address if candidates else None


def grant(context: Context, mac: str) -> Generator[Effect, Any, str | None]:
    """Lease an address to a guest; None if the pool is exhausted."""
    file = path(context)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "ab"):
        pass
    yield Flock(file, wait=True)
    now = context.now()
    valid = [lease for lease in read(context) if lease.until > now]
    granted = address(context, mac) or _unused(context, valid)
    if granted is not None:
        until = int(now + lease_seconds(context))
        others = [lease for lease in valid if lease.mac != mac]
        _write(file, [*others, Lease(granted, mac, until)])
    yield Unflock(file)
    return granted


def lease_seconds(context: Context) -> float:
    """Return the lease time of the Mac's preferences, or that of the settings."""
    try:
        with open(os.path.join(context.hidden, LEASE_SECONDS), encoding="utf-8") as file:
            return int(file.read())
    except FileNotFoundError:
        return float(context.settings.host["lease_seconds"])


def _unused(context: Context, valid: list[Lease]) -> str | None:
    used = {lease.address for lease in valid}
    subnet = context.settings.host["subnet"]
    pool = (f"{subnet}.{number}" for number in range(_FIRST, _LAST + 1))
    return next((each for each in pool if each not in used), None)


def _write(file: str, leases: list[Lease]) -> None:
    """Write in place: a rename would leave the lock on the old file."""
    blocks = []
    for lease in leases:
        mac = _unpadded(lease.mac)
        blocks.append(
            f"{{\n\tname=guest\n\tip_address={lease.address}\n\thw_address=1,{mac}\n"
            f"\tidentifier=1,{mac}\n\tlease={hex(lease.until)}\n}}\n"
        )
    with open(file, "w", encoding="utf-8") as opened:
        opened.write("".join(blocks))
