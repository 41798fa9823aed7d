"""The page about the conditions of Macs names every reason that the controllers report, and no other."""

from __future__ import annotations

import re

from bramley.api.names import events
from tests.meta.documents import ROOT, SOURCES

PAGE = ROOT / "docs/reference/mac-conditions.md"
NO_REASONS = {events.MACHINES_COMPONENT, events.NORMAL, events.WARNING}


def reported() -> set[str]:
    """Return the reasons that the controllers of Macs refer to."""
    code = "\n".join(each.read_text() for each in (SOURCES / "machines").glob("*.py"))
    names = set(re.findall(r"\bevents\.([A-Z][A-Z_]+)\b", code))
    return {getattr(events, name) for name in names} - NO_REASONS


def documented() -> set[str]:
    """Return the reasons in the first column of the tables."""
    cells = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_page_has_exactly_the_reasons_of_the_code() -> None:
    # A reason of an event may stand in another column, beside that of its condition.
    text = PAGE.read_text()

    assert {reason for reason in reported() if f"`{reason}`" not in text} == set()
    assert documented() - reported() == set()
