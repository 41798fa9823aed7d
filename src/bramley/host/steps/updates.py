"""Automatic macOS updates off: they would reboot a Mac while VMs run, and change the macOS that VMs depend on.

Apple's malware definitions (ConfigDataInstall) are not changed: they need no reboot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import host
from bramley.host import defaults
from bramley.host.commands import Command, Probe, Run, RunProbe
from bramley.host.defaults import Default
from bramley.host.facts import Facts
from bramley.host.step import Step

# As root: it reads the preferences that our own settings make unreadable for others.
SCHEDULE = RunProbe(("softwareupdate", "--schedule"), as_root=True)
SETTINGS = tuple(
    Default(host.SOFTWARE_UPDATE_DEFAULTS, key, value=False)
    for key in (
        "AutomaticCheckEnabled",
        "AutomaticDownload",
        "AutomaticallyInstallMacOSUpdates",
        "CriticalUpdateInstall",
    )
)
_OFF = "off"


@dataclass(frozen=True, slots=True)
class Updates(Step):
    """Disable automatic updates of macOS."""

    name: ClassVar[str] = "updates"
    title: ClassVar[str] = "automatic macOS updates off"

    def probes(self) -> list[Probe]:
        """Probe the schedule and the setting of each kind of update."""
        return [SCHEDULE, *(setting.probe for setting in SETTINGS)]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Turn off what is on."""
        schedule = facts.result(SCHEDULE)
        if schedule.code != 0 or _OFF not in schedule.text.lower().rstrip(".").split():
            yield Run(
                argv=("softwareupdate", "--schedule", _OFF),
                purpose="turn the check for updates off",
                as_root=True,
                # Its daemon may be busy with an update.
                timeout=timedelta(minutes=3),
            )
        yield from defaults.write_changed(SETTINGS, facts)
