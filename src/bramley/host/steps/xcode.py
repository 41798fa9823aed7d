"""Xcode of a builder: it comes with the image that the Mac was ordered with; the step selects it and accepts its licence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import UnsupportedHost
from bramley.host.commands import Command, Probe, Run, RunProbe, Stat
from bramley.host.facts import FOLDER, Facts
from bramley.host.step import Step

_DEVELOPER = Stat(host.XCODE)
_SELECTED = RunProbe(("xcode-select", "-p"))
_LICENCE = RunProbe(("xcodebuild", "-license", "check"))
_SWIFT = RunProbe(("xcrun", "--find", "swift"))
_ORDER = "order or reinstall this Mac with an image of macOS that includes Xcode"


@dataclass(frozen=True, slots=True)
class Xcode(Step):
    """Require a usable Xcode."""

    name: ClassVar[str] = "xcode"
    title: ClassVar[str] = "Xcode"

    def probes(self) -> list[Probe]:
        """Probe Xcode, whether it is selected, its licence, and its compiler."""
        return [_DEVELOPER, _SELECTED, _LICENCE, _SWIFT]

    def check_supported(self, facts: Facts) -> None:
        """Refuse a Mac without Xcode, or with an incomplete one."""
        stat = facts.stat(_DEVELOPER)
        if stat is None or stat.kind != FOLDER:
            raise UnsupportedHost(f"{host.XCODE} does not exist, and a builder needs it; {_ORDER}")
        is_usable = not any(self.plan(facts))
        if is_usable and facts.result(_SWIFT).code != 0:
            raise UnsupportedHost(f"Xcode is selected and has no swift; {_ORDER}")

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Select Xcode, and accept its licence."""
        selected = facts.result(_SELECTED)
        is_selected = selected.code == 0 and selected.text == host.XCODE
        if not is_selected:
            yield Run(argv=("xcode-select", "-s", host.XCODE), purpose="select Xcode", as_root=True)
        # Of another Xcode, or of none, the licence is not that of this one.
        if not is_selected or facts.result(_LICENCE).code != 0:
            yield Run(
                argv=("xcodebuild", "-license", "accept"),
                purpose="accept the licence of Xcode",
                as_root=True,
                timeout=timedelta(minutes=2),
            )
