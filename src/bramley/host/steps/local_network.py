"""The Local Network allowlist: addresses that every program may reach without a click on "Allow" for its signature.

macOS reads the list at boot. So the boot session is recorded before the list is written; while that session lasts, a reboot is
pending: a fresh Mac is rebooted at once; a Mac with VMs or an agent, or one that would not come back unattended, is not. If the Mac
had an agent before any session was recorded, as one of the existing provider, its Tart works with the permission that it has, and a
reboot is only advised. Foreign addresses in the list stay. The first releases that ask for permission do not know the list, which is
reported as advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import defaults, drift, loginwindow, shared_probes
from bramley.host.commands import (
    Command,
    Probe,
    ReadFile,
    Reboot,
    Run,
    RunProbe,
    Stat,
    Write,
)
from bramley.host.drift import DesiredPart, Part
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.host.steps.preconditions import AGENT_PLIST, VERSION, version_of

KEYS = ("AllowedEthernetLocalNetworkAddresses", "AllowedWiFiLocalNetworkAddresses")
# The first releases of macOS that ask for permission, and that know the list.
PERMISSION_SINCE, ALLOWLIST_SINCE = (15, 0), (15, 5)
NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
BOOT_NOTE = ReadFile(host.LOCAL_NETWORK_BOOT, max_bytes=4096)
_FOLDER = Stat(host.STAMPS_FOLDER)
# Follows the boot session of a Mac that had an agent before the list was recorded.
_SERVED = "served"


@dataclass(frozen=True, slots=True)
class LocalNetwork(Step):
    """Allow programs to reach private addresses, from the next boot on."""

    name: ClassVar[str] = "local-network"
    title: ClassVar[str] = "access to the local network"

    user: str

    def desired(self) -> DesiredPart:
        """Stamp the addresses."""
        digests = {key: drift.digest("\n".join(NETWORKS).encode()) for key in KEYS}
        return DesiredPart(Part.LOCAL_NETWORK, digests)

    def probes(self) -> list[Probe]:
        """Probe the lists, the current and the recorded boot session, and what a reboot would interrupt."""
        lists = [_list_probe(key) for key in KEYS]
        own: list[Probe] = [
            VERSION,
            shared_probes.BOOT_SESSION,
            BOOT_NOTE,
            _FOLDER,
            AGENT_PLIST,
            shared_probes.RUNNING_VMS,
            loginwindow.FILE_VAULT,
        ]
        return [*lists, *own, *loginwindow.probes(self.user)]

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Return the probes that depend on the first results."""
        return loginwindow.follow_up_probes(self.user, facts)

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write what is missing, and reboot a fresh Mac."""
        missing = _write_missing(facts)
        # Before the list: an interruption in between leaves a reboot pending, never a list that is not in effect.
        if missing or facts.file(BOOT_NOTE) is None:
            yield from _note_boot(facts)
        yield from missing
        if (missing or _is_pending(facts)) and _may_reboot(facts):
            yield shared_probes.require_no_vms()
            yield Reboot(purpose="reboot the Mac, so that its Local Network allowlist takes effect")
        elif facts.stat(AGENT_PLIST) is None and loginwindow.needs_login(self.user, facts):
            # The reboot has ended the session; without a display the boot creates none.
            yield from loginwindow.restart_loginwindow(loginwindow.uid_of(self.user, facts))

    def advice(self, facts: Facts) -> str:
        """Return what people may do: reboot a Mac that works without the list, or update a macOS that ignores the list."""
        if _supports_list(facts):
            return _REBOOT_ADVISED if _is_pending(facts) and _has_served(facts) else ""
        return (
            f"UpdateAdvised: macOS {facts.result(VERSION).text[:40]} has no Local Network allowlist, which came with "
            f"{ALLOWLIST_SINCE[0]}.{ALLOWLIST_SINCE[1]}; update it, or allow Tart at the Mac's screen after each change of it"
        )

    def pending(self, facts: Facts) -> str:
        """Return that the list is not in effect yet."""
        # If this macOS ignores the list, a reboot does not help.
        if not _is_pending(facts) or not _supports_list(facts) or _has_served(facts):
            return ""
        reason = "RebootPending: the Local Network allowlist, which VMs need, takes effect at the next boot of the Mac"
        return f"{reason}; {loginwindow.reboot_blocker(facts) or 'reboot it when it runs no VMs'}"


_REBOOT_ADVISED = (
    "RebootAdvised: the Local Network allowlist is in effect after the next boot of the Mac at the latest; until then another Tart may "
    "need permission at the Mac's screen"
)


def _supports_list(facts: Facts) -> bool:
    """Return whether this macOS knows the list or does not ask for permission at all; true if its version is unknown."""
    version = version_of(facts)
    return version is None or not PERMISSION_SINCE <= version < ALLOWLIST_SINCE


def _list_probe(key: str) -> RunProbe:
    return RunProbe(("defaults", "read", host.LOCAL_NETWORK_DEFAULTS, key), as_root=True)


def _write_missing(facts: Facts) -> list[Command]:
    return [_write(key, facts) for key in KEYS if not set(NETWORKS) <= set(_networks(key, facts))]


def _networks(key: str, facts: Facts) -> list[str]:
    """Return the addresses of a list, which is printed in brackets, one to a line."""
    result = facts.result(_list_probe(key))
    words = (line.strip(' \t(),"') for line in result.text.splitlines())
    return [word for word in words if word] if result.code == 0 else []


def _write(key: str, facts: Facts) -> Run:
    networks = dict.fromkeys((*_networks(key, facts), *NETWORKS))
    # A list that could not be read may contain foreign addresses.
    kind = "-array" if defaults.is_answer(facts.result(_list_probe(key))) else "-array-add"
    return Run(
        argv=("defaults", "write", host.LOCAL_NETWORK_DEFAULTS, key, kind, *networks),
        purpose=f"set {key}",
        as_root=True,
    )


def _note_boot(facts: Facts) -> Iterator[Command]:
    if facts.stat(_FOLDER) is None:
        yield drift.CREATE_FOLDER
    served = f" {_SERVED}" if _has_served(facts) else ""
    yield Write(
        path=BOOT_NOTE.path,
        content=f"{shared_probes.boot_session(facts)}{served}\n".encode(),
        purpose="record the boot session in which the Local Network allowlist was written",
        before=facts.file(BOOT_NOTE),
    )


def _is_pending(facts: Facts) -> bool:
    """Return whether the Mac was not rebooted since the list was written; true if that is unknown."""
    note = _boot_note(facts)
    return note is None or note[:1] == [shared_probes.boot_session(facts)]


def _has_served(facts: Facts) -> bool:
    """Return whether the Mac had an agent before any boot session was recorded."""
    note = _boot_note(facts)
    return facts.stat(AGENT_PLIST) is not None if note is None else note[1:] == [_SERVED]


def _boot_note(facts: Facts) -> list[str] | None:
    note = facts.file(BOOT_NOTE)
    return None if note is None else (note.decode("utf-8", "replace").split() or [""])


def _may_reboot(facts: Facts) -> bool:
    is_fresh = facts.stat(AGENT_PLIST) is None and not shared_probes.vms_may_run(facts)
    return is_fresh and not loginwindow.reboot_blocker(facts)
