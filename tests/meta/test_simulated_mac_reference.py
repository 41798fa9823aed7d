"""The reference of the simulated Mac names every program that the model has, and no other."""

from __future__ import annotations

import re

from bramley.sim.macos.programs import ORDINARY, PROGRAMS
from tests.meta.documents import ROOT

REFERENCE = (ROOT / "docs/reference/simulated-mac.md").read_text()
_ROW = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \|", re.MULTILINE)


def test_table_has_every_program_of_macos() -> None:
    named = {name for row in _ROW.findall(REFERENCE) for name in re.findall(r"`([^`]+)`", row)}

    assert named == set(PROGRAMS)


def test_list_has_every_unix_program() -> None:
    _, _, section = REFERENCE.partition("\n## Unix programs\n")
    [listed] = re.findall(r"^`\w+`(?:, `\w+`)+$", section, re.MULTILINE)

    assert set(re.findall(r"`([^`]+)`", listed)) == set(ORDINARY)
