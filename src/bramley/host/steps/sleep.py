"""Sleep: a Mac that serves must not doze off, lock its screen or log its user out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import defaults
from bramley.host.commands import Command, Look, Probe, Run
from bramley.host.defaults import Default
from bramley.host.facts import Facts

# What the Mac does by itself, for each source of power.
POWER = Look(("pmset", "-g", "custom"))
_NEVER = ("sleep", "displaysleep", "disksleep")
SETTINGS = (
    Default(host.SCREENSAVER_DEFAULTS, "idleTime", 0),
    Default(host.SCREENSAVER_DEFAULTS, "askForPassword", 0),
    Default(host.GLOBAL_DEFAULTS, "com.apple.autologout.AutoLogOutDelay", 0),
)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Keep a Mac awake and its session open."""

    name: ClassVar[str] = "sleep"
    title: ClassVar[str] = "idle sleep off"

    def wanted(self) -> None:
        """Stamp nothing: it is seen by looking."""

    def looks(self) -> list[Probe]:
        """Ask for the settings of power and of the session."""
        return [POWER, *(one.look for one in SETTINGS)]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Turn off whatever is on."""
        if _sleeps(seen.said(POWER).text):
            yield Run(
                argv=("pmset", "-a", *(word for name in _NEVER for word in (name, "0"))),
                purpose="turn sleep of the Mac, its display and its disk off",
                as_root=True,
            )
        yield from defaults.missing(SETTINGS, seen)


def _sleeps(told: str) -> bool:
    """Tell whether anything sleeps under any source of power, or nothing is known of it; behind a value there may be a remark."""
    found = [words[:2] for line in told.splitlines() if len(words := line.split()) > 1]
    values = [(name, value) for name, value in found if name in _NEVER]
    return not values or any(value != "0" for _, value in values)
