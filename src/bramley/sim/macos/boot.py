"""Shutdown and start of a simulated Mac.

A shutdown ends the session at the console and all jobs and processes, and empties /tmp and /var/run. A start loads the daemons of
launchd's folders and applies the list of allowed local networks, which nothing else does. A Mac whose disk is encrypted, or is from
this start on, does not come back: it waits for a password at its screen.
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

_CLEARED_FOLDERS = ("/private/tmp", "/private/var/run")
_NEVER = 1e12


def is_up(state: Mapping[str, Any]) -> bool:
    """Return whether the Mac runs."""
    return "back_at" not in state["boot"]


def next_event_at(state: Mapping[str, Any]) -> float:
    """Return when a Mac that is shut down starts again."""
    return float(state["boot"].get("back_at", inf))


def run_due_events(mac: Mac, state: dict[str, Any]) -> None:
    """Start the Mac."""
    start(mac, state)


def shut_down(mac: Mac, state: dict[str, Any], *, restarts: bool = True) -> None:
    """Shut down: end everything that only a running Mac has, until it starts again."""
    loginwindow.log_out(mac, state)
    for domain in {launchd.domain_of(target) for target in state["launchd"]["jobs"]}:
        launchd.end_domain(mac, state, domain)
    state["processes"] = []
    for folder in _CLEARED_FOLDERS:
        for name in mac.files.names(folder):
            mac.files.remove(f"{folder}/{name}")
    if state.get("filevault_after") == "restart":
        state.update({"filevault": True, "filevault_after": ""})
    comes_back = restarts and not state["filevault"]
    downtime = state["settings"]["boot_seconds"] if comes_back else _NEVER
    state["boot"]["back_at"] = mac.now() + downtime


def start(mac: Mac, state: dict[str, Any]) -> None:
    """Start the Mac from its files, with a new boot id."""
    count = state["boot"].get("started_count", 0) + 1
    # Derived from its number: a Mac that records its boot in a file must be the same in every run.
    boot_id = uuid.uuid5(uuid.NAMESPACE_OID, f"boot {count}")
    state["boot"] = {
        "boot_id": str(boot_id).upper(),
        "started_count": count,
        "started_at": mac.now(),
    }
    local_network.apply_preferences(mac, state)
    # The rules of pf come before the jobs of launchd, which may turn it on.
    pfctl.on_boot(mac, state)
    for folder in launchd.DAEMONS:
        launchd.load_folder(mac, state, launchd.SYSTEM, folder)
    if not state["settings"]["headless"]:
        loginwindow.schedule_login(mac, state)
