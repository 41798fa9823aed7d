"""Short DHCP leases: the network of VMs has about 253 addresses, and each VM takes a new one.

macOS' DHCP server keeps an address for a day after its VM has ended, so after some 250 VMs in a day no VM would get one. Its lease
time is one value of a file that other settings share; those stay. The file is read as it is on the disk, because that is what the
server reads, and with types, because it ignores a text. The server reads it when the network of VMs starts, so nothing is restarted.

The stamp identifies a time other than the default as ours. If an `apply` that changes the time is cut between the file and the stamp,
a removal that follows keeps that time; the next `apply` writes the stamp.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar
from xml.parsers.expat import ExpatError

from bramley.api.names import host
from bramley.host import drift
from bramley.host.commands import Command, Probe, Run, RunProbe
from bramley.host.drift import DesiredPart, Part
from bramley.host.facts import Facts
from bramley.host.step import Step

# Long enough for a guest to renew it, short enough for more VMs than a Mac can run.
DEFAULT_SECONDS = 600
# As root: `defaults` of root leaves a file that others cannot read.
PREFERENCES = RunProbe(
    ("plutil", "-convert", "xml1", "-o", "-", host.SHARING_PREFERENCES), as_root=True
)


@dataclass(frozen=True, slots=True)
class DhcpLeases(Step):
    """Limit how long an address stays reserved for a VM that has ended."""

    name: ClassVar[str] = "dhcp-leases"
    title: ClassVar[str] = "short DHCP leases of VMs"
    seconds: int = DEFAULT_SECONDS

    def desired(self) -> DesiredPart:
        """Stamp the lease time."""
        return DesiredPart(
            Part.DHCP_LEASES,
            {host.SHARING_LEASE_SECONDS: drift.digest(str(self.seconds).encode())},
        )

    def probes(self) -> list[Probe]:
        """Probe the preferences."""
        return [PREFERENCES]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Set the lease time, and keep all other values."""
        if _lease_seconds(facts) != self.seconds:
            yield Run(
                argv=(
                    "defaults",
                    "write",
                    host.SHARING_PREFERENCES,
                    host.SHARING_DHCP,
                    # `defaults` adds nothing to a value of another type, which the server cannot use either.
                    "-dict" if _is_other_type(facts) else "-dict-add",
                    host.SHARING_LEASE_SECONDS,
                    "-int",
                    str(self.seconds),
                ),
                purpose=f"set the lease time of the DHCP server to {self.seconds} s",
                as_root=True,
            )


def remove(facts: Facts) -> Iterator[Command]:
    """Yield the commands that restore the lease time of macOS; another time than ours stays."""
    if not _is_ours(facts):
        return
    is_alone = len(_server_settings(facts)) == 1
    key = host.SHARING_DHCP if is_alone else f"{host.SHARING_DHCP}.{host.SHARING_LEASE_SECONDS}"
    yield Run(
        argv=("plutil", "-remove", key, host.SHARING_PREFERENCES),
        purpose="restore the lease time of the DHCP server",
        as_root=True,
    )


def _is_ours(facts: Facts) -> bool:
    """Return whether the lease time is the default, or the one that was stamped."""
    seconds = _lease_seconds(facts)
    if seconds is None:
        return False
    stamp = drift.read_stamps(facts).get(Part.DHCP_LEASES)
    return seconds == DEFAULT_SECONDS or DhcpLeases(seconds).desired().stamp == stamp


def _lease_seconds(facts: Facts) -> int | None:
    """Return the lease time; None if there is none that the server can use, such as a text of digits or a float."""
    seconds = _server_settings(facts).get(host.SHARING_LEASE_SECONDS)
    return seconds if type(seconds) is int else None


def _server_settings(facts: Facts) -> dict[str, Any]:
    """Return the settings of the DHCP server; empty if there are none, or they cannot be read."""
    settings = _preferences(facts).get(host.SHARING_DHCP)
    return settings if isinstance(settings, dict) else {}


def _is_other_type(facts: Facts) -> bool:
    """Return whether the settings of the DHCP server are known to be no dictionary."""
    return not isinstance(_preferences(facts).get(host.SHARING_DHCP, {}), dict)


def _preferences(facts: Facts) -> dict[str, Any]:
    """Return the whole file; empty if there is none, or it cannot be read."""
    result = facts.result(PREFERENCES)
    try:
        preferences = plistlib.loads(result.output, fmt=plistlib.FMT_XML) if not result.code else {}
    # plistlib does not wrap the errors of its parser.
    except (ExpatError, ValueError, LookupError, TypeError, AttributeError):
        return {}
    return preferences if isinstance(preferences, dict) else {}
