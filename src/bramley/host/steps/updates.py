"""Automatic updates of macOS off: one that installs itself reboots a Mac under its VMs, and another macOS is another host.

Apple's lists against malware (ConfigDataInstall) are left alone: they come without a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import host
from bramley.host import defaults
from bramley.host.commands import Command, Look, Probe, Run
from bramley.host.defaults import Default
from bramley.host.facts import Facts

SCHEDULE = Look(("softwareupdate", "--schedule"))
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
class Updates:
    """Keep macOS as it is until somebody updates it."""

    name: ClassVar[str] = "updates"
    title: ClassVar[str] = "automatic macOS updates off"

    def wanted(self) -> None:
        """Stamp nothing: it is seen by looking."""

    def looks(self) -> list[Probe]:
        """Ask for the schedule and for each kind of update."""
        return [SCHEDULE, *(one.look for one in SETTINGS)]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Turn off whatever is on."""
        told = seen.said(SCHEDULE)
        if told.code != 0 or _OFF not in told.text.lower().rstrip(".").split():
            yield Run(
                argv=("softwareupdate", "--schedule", _OFF),
                purpose="stop looking for updates",
                as_root=True,
                # It asks a daemon that may be busy with an update.
                within=timedelta(minutes=3),
            )
        yield from defaults.missing(SETTINGS, seen)
