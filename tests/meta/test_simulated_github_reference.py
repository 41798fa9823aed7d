"""The reference of the simulated GitHub names every call that it answers, and no other."""

from __future__ import annotations

import re

from bramley.sim.github.calls import CALLS
from bramley.sim.github.faults import Fault
from tests.meta.documents import ROOT

REFERENCE = (ROOT / "docs/reference/simulated-github.md").read_text()


def test_table_has_every_call() -> None:
    section = REFERENCE.partition("## Calls of GitHub")[2].partition("\n## ")[0]

    named = re.findall(r"^\| `([A-Z]+ [^`]+)` \|", section, re.MULTILINE)

    assert sorted(named) == sorted(
        f"{method} {path.replace(':int', '')}" for method, path, _ in CALLS
    )


def test_fields_of_faults_are_named() -> None:
    row = next(line for line in REFERENCE.splitlines() if "/sim/faults" in line)

    named = re.findall(r"`(\w+)`", row)

    assert sorted(named) == sorted(Fault.__struct_fields__)
