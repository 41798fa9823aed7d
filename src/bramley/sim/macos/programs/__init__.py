"""The programs of a simulated Mac: the module and function of each name.

`PROGRAMS` are those of macOS and those installed on Macs; the in-process Mac and the Mac behind SSH both run these. `ORDINARY`
programs exist on every Unix: only the in-process Mac runs these, behind SSH the machine's own run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from bramley.sim.macos.call import Program


def find(name: str) -> Program | None:
    """Return a program by its bare name, macOS' own first; None if there is none.

    Its module is imported at the first call: few of them are used in one test.
    """
    found = PROGRAMS.get(name) or ORDINARY.get(name)
    if found is None:
        return None
    module, function = found
    program: Program = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return program


PROGRAMS: Mapping[str, tuple[str, str]] = {
    "sudo": ("sudo", "sudo"),
    "dscl": ("dscl", "dscl"),
    "launchctl": ("launchctl", "launchctl"),
    "killall": ("unix_tools", "killall"),
    "shutdown": ("system_settings", "shutdown"),
    "reboot": ("system_settings", "reboot"),
    "node_exporter": ("third_party", "node_exporter"),
    "tailscale": ("tailscale", "tailscale"),
    "tailscaled": ("tailscale", "tailscaled"),
    "date": ("system_settings", "date"),
    "defaults": ("defaults", "defaults"),
    "df": ("system_info", "df"),
    "dscacheutil": ("system_settings", "dscacheutil"),
    "fdesetup": ("system_settings", "fdesetup"),
    "hostname": ("system_settings", "hostname"),
    "newsyslog": ("newsyslog", "newsyslog"),
    "pfctl": ("pfctl", "pfctl"),
    "plutil": ("plutil", "plutil"),
    "pmset": ("system_settings", "pmset"),
    "scutil": ("system_settings", "scutil"),
    "softwareupdate": ("system_settings", "softwareupdate"),
    "sw_vers": ("system_info", "sw_vers"),
    "sysctl": ("system_info", "sysctl"),
    "uname": ("system_info", "uname"),
    "visudo": ("sudoers", "visudo"),
}

ORDINARY: Mapping[str, tuple[str, str]] = {
    # A Mac behind SSH has the machine's curl, and the simulated tart in its bundle.
    "curl": ("curl", "curl"),
    "tart": ("third_party", "tart"),
    "cat": ("unix_tools", "cat"),
    "chmod": ("unix_tools", "chmod"),
    "chown": ("unix_tools", "chown"),
    "cmp": ("unix_tools", "cmp"),
    "false": ("unix_tools", "false"),
    "id": ("unix_tools", "id"),
    "ls": ("unix_tools", "ls"),
    "pgrep": ("unix_tools", "pgrep"),
    "printenv": ("system_settings", "printenv"),
    "tail": ("unix_tools", "tail"),
    "tar": ("unix_tools", "tar"),
    "true": ("unix_tools", "true"),
    "whoami": ("unix_tools", "whoami"),
}
