"""The programs of a simulated Mac, a few to a file, and what has to happen to them when it starts.

`PROGRAMS` are macOS' own and those that are brought to Macs: both faces of the simulation answer them from here. `ORDINARY` ones
exist on every Unix; only the face that works in process needs these, behind SSH the machine's own run. A program of `PLACES` is
there only when one of these files is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bramley.sim.macos.call import Program

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

# Asked for when they are first needed: a shim runs one program, and should not import them all.
Loader = Callable[[], Program]
# A module of this package and a function of it that gets the Mac and its open state.
Heard = tuple[str, str]


def find(name: str) -> Program | None:
    """Return a program by its bare name, macOS' own first; None if there is none."""
    loader = PROGRAMS.get(name) or ORDINARY.get(name)
    return None if loader is None else loader()


def tell(heard: tuple[Heard, ...], mac: Mac, state: dict[str, Any]) -> None:
    """Tell these functions of programs what has happened to the Mac."""
    for module, function in heard:
        getattr(importlib.import_module(f"{__name__}.{module}"), function)(mac, state)


def _from(module: str, function: str) -> Loader:
    def load() -> Program:
        program: Program = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        return program

    return load


PROGRAMS: Mapping[str, Loader] = {
    "sudo": _from("sudo", "sudo"),
    "dscl": _from("dscl", "dscl"),
    "launchctl": _from("launchctl", "launchctl"),
    "killall": _from("signals", "killall"),
    "shutdown": _from("power", "shutdown"),
    "reboot": _from("power", "reboot"),
    "brew": _from("developing", "brew"),
    "codesign": _from("codesign", "codesign"),
    "node_exporter": _from("node_exporter", "node_exporter"),
    "sysadminctl": _from("sysadminctl", "sysadminctl"),
    "tailscale": _from("tailscale", "tailscale"),
    "tailscaled": _from("tailscale", "tailscaled"),
    "xcode-select": _from("developing", "xcode_select"),
    "xcrun": _from("developing", "xcrun"),
    "arch": _from("versions", "arch"),
    "date": _from("system_settings", "date"),
    "defaults": _from("defaults", "defaults"),
    "df": _from("disks", "df"),
    "diskutil": _from("disks", "diskutil"),
    "dscacheutil": _from("system_settings", "dscacheutil"),
    "fdesetup": _from("system_settings", "fdesetup"),
    "hostname": _from("system_settings", "hostname"),
    "newsyslog": _from("newsyslog", "newsyslog"),
    "pfctl": _from("pfctl", "pfctl"),
    "plutil": _from("plutil", "plutil"),
    "pmset": _from("system_settings", "pmset"),
    "scutil": _from("system_settings", "scutil"),
    "softwareupdate": _from("system_settings", "softwareupdate"),
    "sw_vers": _from("versions", "sw_vers"),
    "sysctl": _from("versions", "sysctl"),
    "systemsetup": _from("system_settings", "systemsetup"),
    "uname": _from("versions", "uname"),
    "visudo": _from("sudoers", "visudo"),
}

ORDINARY: Mapping[str, Loader] = {
    # A Mac in a root of its own has the machine's, and the simulated tart in the bundle.
    "curl": _from("curl", "curl"),
    "tart": _from("tart_bundle", "tart"),
    "cat": _from("ordinary", "cat"),
    "chmod": _from("ordinary", "chmod"),
    "chown": _from("ordinary", "chown"),
    "cmp": _from("ordinary", "cmp"),
    "false": _from("ordinary", "false"),
    "id": _from("ordinary", "id"),
    "ls": _from("ordinary", "ls"),
    "pgrep": _from("signals", "pgrep"),
    "printenv": _from("system_settings", "printenv"),
    "tail": _from("ordinary", "tail"),
    "tar": _from("unpacking", "tar"),
    "true": _from("ordinary", "true"),
    "whoami": _from("ordinary", "whoami"),
}

# Where a program that does not come with macOS must lie, if its name alone is not enough.
PLACES: Mapping[str, tuple[str, ...]] = {}

# What hears of a start of the Mac, before any job runs, and of the end of the session at its console.
ON_BOOT: tuple[Heard, ...] = (("pfctl", "on_boot"),)
ON_LOGOUT: tuple[Heard, ...] = ()
