"""The local network: addresses that every program may reach without somebody clicking "Allow" for its signature.

macOS reads the list when it starts. So the start during which it was written is noted before it is written; while that one lasts, a
reboot is pending: a fresh Mac gets it at once, one with VMs or an agent, or that would not come back by itself, never. Addresses that
others have put there stay. The first releases that ask for permission do not know the list yet, which is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import boots, drift, login, vms
from bramley.host.commands import Command, Find, Folder, Look, LookAt, Probe, Reboot, Run, Write
from bramley.host.drift import Part, Wanted
from bramley.host.facts import Facts
from bramley.host.steps.preconditions import AGENT, VERSION, version_of

KEYS = ("AllowedEthernetLocalNetworkAddresses", "AllowedWiFiLocalNetworkAddresses")
# From when on macOS asks for permission, and from when on it knows the list.
ASKS, KNOWS = (15, 0), (15, 5)
NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
NOTED = LookAt(host.LOCAL_NETWORK_BOOT, most=4096)
_FOLDER = Find(host.STAMPS_FOLDER)


@dataclass(frozen=True, slots=True)
class LocalNetwork:
    """Let programs reach private addresses, from the next start of the Mac on."""

    name: ClassVar[str] = "local-network"
    title: ClassVar[str] = "access to the local network"

    user: str

    def wanted(self) -> Wanted:
        """Stamp the addresses."""
        told = {key: drift.digest("\n".join(NETWORKS).encode()) for key in KEYS}
        return Wanted(Part.LOCAL_NETWORK, told)

    def looks(self) -> list[Probe]:
        """Ask for the lists, for this start of the Mac and the one that was noted, and for what a reboot would end."""
        lists = [_list(key) for key in KEYS]
        own: list[Probe] = [
            VERSION,
            boots.BOOT,
            NOTED,
            _FOLDER,
            AGENT,
            vms.PROBE,
            login.FILE_VAULT,
        ]
        return [*lists, *own, *login.looks(self.user)]

    def looks_further(self, seen: Facts) -> Sequence[Probe]:
        """Ask for what the first answers lead to."""
        return login.looks_further(self.user, seen)

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Write what is missing, and restart a fresh Mac."""
        missing = _missing(seen)
        if missing or seen.file(NOTED) is None:
            yield from _note(seen)
        yield from missing
        if (missing or _is_pending(seen)) and _may_reboot(seen):
            yield vms.none_has_started()
            yield Reboot(purpose="restart the Mac, so that its list of local addresses counts")
        elif seen.found(AGENT) is None and login.is_due(self.user, seen):
            # A start has ended the session, and brought none back: without a display it does not.
            yield from login.kick(login.uid_of(self.user, seen))

    def advice(self, seen: Facts) -> str:
        """Tell that the list would not count at all: all that a step can do is done, and people have to do the rest."""
        if _heeds_list(seen):
            return ""
        return (
            f"UpdateAdvised: macOS {seen.said(VERSION).text[:40]} knows no list of local addresses, which came with "
            f"{KNOWS[0]}.{KNOWS[1]}; update it, or allow Tart at the Mac's screen after each change of it"
        )

    def pending(self, seen: Facts) -> str:
        """Tell that the list does not count yet."""
        # Where it counts never, there is nothing to wait for.
        if not _is_pending(seen) or not _heeds_list(seen):
            return ""
        told = "RebootPending: the addresses that VMs are reached at count from the next start of the Mac"
        return f"{told}; {login.lost_by_restart(seen) or 'restart it when it runs no VMs'}"


def _heeds_list(seen: Facts) -> bool:
    """Tell whether this macOS knows the list, or asks for no permission in the first place, as far as is known."""
    version = version_of(seen)
    return version is None or not ASKS <= version < KNOWS


def _list(key: str) -> Look:
    return Look(("defaults", "read", host.LOCAL_NETWORK_DEFAULTS, key), as_root=True)


def _missing(seen: Facts) -> list[Command]:
    return [
        _write(key, found) for key in KEYS if not set(NETWORKS) <= set(found := _found(key, seen))
    ]


def _found(key: str, seen: Facts) -> list[str]:
    """Return the addresses of a list, which is printed in brackets, one to a line."""
    told = seen.said(_list(key))
    words = (line.strip(' \t(),"') for line in told.text.splitlines())
    return [word for word in words if word] if told.code == 0 else []


def _write(key: str, found: Sequence[str]) -> Run:
    networks = dict.fromkeys((*found, *NETWORKS))
    return Run(
        argv=("defaults", "write", host.LOCAL_NETWORK_DEFAULTS, key, "-array", *networks),
        purpose=f"set {key}",
        as_root=True,
    )


def _note(seen: Facts) -> Iterator[Command]:
    if seen.found(_FOLDER) is None:
        yield Folder(path=host.STAMPS_FOLDER, purpose="make the folder of the stamps")
    yield Write(
        path=NOTED.path,
        content=f"{boots.name(seen)}\n".encode(),
        purpose="note that the list of local addresses counts from the next start",
        before=seen.file(NOTED),
    )


def _is_pending(seen: Facts) -> bool:
    """Tell whether the Mac has not been restarted since the list was written, as far as is known."""
    noted = seen.file(NOTED)
    return noted is None or noted.decode("utf-8", "replace").strip() == boots.name(seen)


def _may_reboot(seen: Facts) -> bool:
    is_fresh = seen.found(AGENT) is None and not vms.may_run(seen)
    return is_fresh and not login.lost_by_restart(seen)
