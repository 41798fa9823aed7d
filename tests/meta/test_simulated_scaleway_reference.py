"""The reference of the simulated Scaleway names every call that it answers, and no other, and its durations."""

from __future__ import annotations

import re

from bramley.sim.scaleway.calls import CALLS
from bramley.sim.scaleway.faults import Fault
from bramley.sim.scaleway.scaleway import Range, Settings
from tests.meta.documents import ROOT

REFERENCE = (ROOT / "docs/reference/simulated-scaleway.md").read_text()


def test_table_has_every_call() -> None:
    section = REFERENCE.partition("## Calls of Scaleway")[2].partition("\n## ")[0]

    named = re.findall(r"^\| `([A-Z]+ [^`]+)` \|", section, re.MULTILINE)

    assert sorted(named) == sorted(f"{method} {path}" for method, path, _ in CALLS)


def test_fields_of_faults_are_named() -> None:
    row = next(line for line in REFERENCE.splitlines() if "POST /sim/faults" in line)

    named = re.findall(r"`(\w+)`", row)

    assert sorted(named) == sorted(Fault.__struct_fields__)


def test_durations_are_those_of_the_settings() -> None:
    settings = Settings()

    def text(duration: Range) -> str:
        least, most = (each.total_seconds() / 60 for each in duration)
        return f"{least:g} to {most:g} min"

    assert (
        f"3 to 5 min, with an image that is not the default one {text(settings.ordering_other_os)}"
        in REFERENCE
    )
    assert text(settings.ordering) == "3 to 5 min"
    assert f"| `rebooting` | {text(settings.rebooting)} |" in REFERENCE
    assert f"| `reinstalling` | {text(settings.reinstalling)} |" in REFERENCE
