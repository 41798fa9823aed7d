"""Sleep off: a Mac that runs VMs must not sleep, lock its screen or log its user out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import defaults
from bramley.host.commands import Command, Probe, Run, RunProbe
from bramley.host.defaults import Default
from bramley.host.facts import Facts
from bramley.host.step import Step

# The settings for each power source.
POWER = RunProbe(("pmset", "-g", "custom"))
# The timers of pmset that are turned off.
NEVER = ("sleep", "displaysleep", "disksleep")
SETTINGS = (
    Default(host.SCREENSAVER_DEFAULTS, "idleTime", 0),
    Default(host.SCREENSAVER_DEFAULTS, "askForPassword", 0),
    Default(host.GLOBAL_DEFAULTS, "com.apple.autologout.AutoLogOutDelay", 0),
)


@dataclass(frozen=True, slots=True)
class Sleep(Step):
    """Keep a Mac awake and its session open."""

    name: ClassVar[str] = "sleep"
    title: ClassVar[str] = "idle sleep off"

    def probes(self) -> list[Probe]:
        """Probe the settings of power and of the session."""
        files = dict.fromkeys(defaults.file_probe(setting.domain) for setting in SETTINGS)
        return [POWER, *(setting.probe for setting in SETTINGS), *files]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Turn off what is on."""
        if _sleeps(facts.result(POWER).text):
            yield Run(
                argv=("pmset", "-a", *(word for name in NEVER for word in (name, "0"))),
                purpose="turn off sleep of the Mac, its display and its disk",
                as_root=True,
            )
        yield from defaults.write_changed(SETTINGS, facts)
        # The screen saver and the timer of the session run as the user.
        yield from defaults.make_readable(SETTINGS, facts)


def _sleeps(settings: str) -> bool:
    """Return whether anything sleeps with any power source, or the settings are unknown; pmset prints remarks after some values."""
    rows = [words[:2] for line in settings.splitlines() if len(words := line.split()) > 1]
    values = [(name, value) for name, value in rows if name in NEVER]
    return not values or any(value != "0" for _, value in values)
