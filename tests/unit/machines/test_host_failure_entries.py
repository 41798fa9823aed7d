"""Entries of the ConfigMap with the failures of hosts, without an API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from bramley.machines.host_failures import (
    MAX_ENTRIES,
    MAX_MACHINES,
    MAX_TEXT,
    Entry,
    FailedMachine,
    decoded,
    surplus,
)
from bramley.machines.host_leases import Holder

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def failed(*uids: str) -> Entry:
    return Entry(machines=tuple(FailedMachine(uid=uid) for uid in uids), time=NOW)


def text(entry: Entry) -> str:
    return msgspec.json.encode(entry).decode()


@pytest.mark.parametrize(
    ("entry", "threshold", "expected"),
    [
        (Entry(), 2, False),
        (failed("u1"), 2, False),
        (failed("u1", "u2"), 2, True),
        (failed("u1"), 1, True),
        (failed("u1", "u2", "u3"), 0, False),
        (Entry(quarantine=""), 0, True),
        (Entry(quarantine="loud fan"), 2, True),
    ],
)
def test_which_hosts_are_in_quarantine(entry: Entry, threshold: int, expected: bool) -> None:
    assert entry.is_quarantined(threshold) is expected


def test_machine_counts_once_and_only_the_last_ones_are_kept() -> None:
    entry = Entry()
    for number in (1, 1, 2, 3, 4, 5, 6, 2):
        holder = Holder("default", f"m{number}", f"u{number}")
        entry = entry.with_failure(holder, "x" * 1000, NOW, limit=MAX_MACHINES)
    assert [each.uid for each in entry.machines] == ["u3", "u4", "u5", "u6", "u2"]
    assert len(entry.reason) == MAX_TEXT


@pytest.mark.parametrize(
    "damaged", ["", "broken", "{", "[]", "{}", "null", '{"machines": 7}', '{"other": "tool"}']
)
def test_text_that_is_no_entry(damaged: str) -> None:
    assert decoded(damaged) is None


def test_entry_is_read_as_it_was_written() -> None:
    for entry in (failed("u1", "u2"), Entry(quarantine=""), Entry(quarantine="why", time=NOW)):
        assert decoded(text(entry)) == entry
    assert decoded('{"quarantine": "by hand", "ticket": 7}') == Entry(quarantine="by hand")


def test_oldest_entry_makes_room_and_quarantined_ones_stay() -> None:
    def at(entry: Entry, minutes: int) -> str:
        return text(msgspec.structs.replace(entry, time=NOW + timedelta(minutes=minutes)))

    data = {f"h{number}": at(failed("u1"), number) for number in range(MAX_ENTRIES - 4)}
    data |= {"quarantined": at(failed("u1", "u2"), -9), "by-hand": text(Entry(quarantine="x"))}
    data |= {"foreign": "text"}
    assert surplus(data, 2) == []
    assert surplus(data | {"a": at(failed("u1"), -1), "b": at(failed("u1"), 900)}, 2) == ["a"]

    people = {f"h{number}": text(Entry(quarantine="x")) for number in range(MAX_ENTRIES)}
    assert surplus(people | {"one": text(failed("u1", "u2"))}, 2) == ["one"]
    assert surplus(people, 2) == []
