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
    module = PROGRAMS.get(name) or ORDINARY.get(name)
    if module is None:
        return None
    function = name.replace("-", "_").replace(".", "_")
    program: Program = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return program


def _by_name(modules: Mapping[str, str]) -> dict[str, str]:
    return {name: module for module, names in modules.items() for name in names.split()}


# By module; a program and its function have the same name, with underscores for - and dots.
PROGRAMS = _by_name(
    {
        "actions_runner": "config.sh",
        "defaults": "defaults",
        "dscl": "dscl",
        "homebrew": "brew",
        "launchctl": "launchctl",
        "newsyslog": "newsyslog",
        "pfctl": "pfctl",
        "plutil": "plutil",
        "sudo": "sudo",
        "sudoers": "visudo",
        "system_info": "df sw_vers sysctl uname",
        "system_settings": "date dscacheutil fdesetup hostname pmset reboot scutil shutdown softwareupdate",
        "tailscale": "tailscale tailscaled",
        "third_party": "node_exporter",
        "unix_tools": "killall",
        "xcode": "xcode-select xcodebuild xcrun",
    }
)
ORDINARY = _by_name(
    {
        # A Mac behind SSH has the machine's curl, and the simulated tart in its bundle.
        "curl": "curl",
        "homebrew": "bash",
        "third_party": "tart",
        "system_settings": "printenv",
        "unix_tools": "cat chmod chown cmp false id install ls pgrep tail tar true whoami",
    }
)
