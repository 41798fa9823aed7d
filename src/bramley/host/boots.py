"""Which start of a Mac this is: another name for each, unlike the time of the start, which moves when the clock is set."""

from __future__ import annotations

from bramley.host.commands import Look
from bramley.host.facts import Facts

BOOT = Look(("sysctl", "-n", "kern.bootsessionuuid"))


def name(seen: Facts) -> str:
    """Return the name of this start; empty if the Mac has none."""
    said = seen.said(BOOT)
    return said.text if said.code == 0 else ""
