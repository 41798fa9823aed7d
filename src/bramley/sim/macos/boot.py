"""How a simulated Mac goes down and starts again, and what does not outlive that.

Gone are the session at the console, all jobs and processes, and what lies in /tmp and /var/run. A start loads the daemons of the
folders that launchd knows, and lets the list of allowed local networks come into force, which nothing else does. A Mac whose disk
is encrypted, or is so from this start on, does not come back by itself: somebody would have to type a password at its screen.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import launchd, local_network, loginwindow
from bramley.sim.macos.programs import pfctl

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

_EMPTIED = ("/private/tmp", "/private/var/run")
_NEVER = 1e12


def is_up(state: Mapping[str, Any]) -> bool:
    """Return whether the Mac runs."""
    return "back_at" not in state["boot"]


def moment(state: Mapping[str, Any]) -> float:
    """Return when a Mac that went down comes back."""
    return float(state["boot"].get("back_at", inf))


def settle(mac: Mac, state: dict[str, Any]) -> None:
    """Come back."""
    start(mac, state)


def go_down(mac: Mac, state: dict[str, Any]) -> None:
    """Lose what only a running Mac holds, and be gone for a while."""
    loginwindow.log_out(mac, state)
    for domain in {launchd.domain_of(target) for target in state["launchd"]["jobs"]}:
        launchd.end_domain(mac, state, domain)
    state["processes"] = []
    for folder in _EMPTIED:
        for name in mac.files.names(folder):
            mac.files.remove(f"{folder}/{name}")
    if state.get("filevault_after") == "restart":
        state.update({"filevault": True, "filevault_after": ""})
    gone = _NEVER if state["filevault"] else state["settings"]["boot_seconds"]
    state["boot"]["back_at"] = mac.now() + gone


def start(mac: Mac, state: dict[str, Any]) -> None:
    """Start the Mac: another boot, with what its files say."""
    count = state["boot"].get("started_count", 0) + 1
    # By its number: a Mac that notes its boot in a file becomes the same in every run.
    boot_id = uuid.uuid5(uuid.NAMESPACE_OID, f"boot {count}")
    state["boot"] = {
        "boot_id": str(boot_id).upper(),
        "started_count": count,
        "started_at": mac.now(),
    }
    local_network.come_into_force(mac, state)
    # The rules of pf come before the jobs of launchd, which may turn it on.
    pfctl.on_boot(mac, state)
    for folder in launchd.DAEMONS:
        launchd.load_folder(mac, state, launchd.SYSTEM, folder)
    if not state["settings"]["headless"]:
        loginwindow.await_login(mac, state)
