"""Drift: one hash per part, stamps of what was applied and nothing else, and files that cannot be trusted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.errors import BadConfiguration
from bramley.host import drift
from bramley.host.drift import Part, Wanted

A, B = drift.digest(b"a"), drift.digest(b"b")
FIREWALL = Wanted(Part.FIREWALL, {"anchor": A, "boot-job": B})
AGENT = Wanted(Part.AGENT, {"archive": A})
JOB = Wanted(Part.AGENT_JOB, {"plist": A})


def stamped(*parts: Wanted) -> drift.Stamps:
    stamps: drift.Stamps = {}
    for part in parts:
        stamps = drift.applied(stamps, part)
    return stamps


def test_a_stamp_is_the_hash_of_the_part_and_its_files() -> None:
    text = f"firewall\0anchor\0{A}\0boot-job\0{B}\0"

    assert FIREWALL.stamp == drift.digest(text.encode())
    assert Wanted(Part.FIREWALL, {"boot-job": B, "anchor": A}).stamp == FIREWALL.stamp


@pytest.mark.parametrize(
    "other",
    [
        Wanted(Part.FIREWALL, {"anchor": B, "boot-job": B}),
        Wanted(Part.FIREWALL, {"anchor": B, "boot-job": A}),
        Wanted(Part.FIREWALL, {"anchor": A}),
        Wanted(Part.FIREWALL, {"anchor": A, "job": B}),
        Wanted(Part.AGENT, {"anchor": A, "boot-job": B}),
    ],
)
def test_whatever_differs_moves_the_stamp(other: Wanted) -> None:
    assert other.stamp != FIREWALL.stamp


@pytest.mark.parametrize("digest", ["", "0" * 63, "Z" * 64, A + "\n"])
def test_an_artifact_without_its_digest_is_no_part(digest: str) -> None:
    with pytest.raises(BadConfiguration, match="part agent: 'archive' comes without its SHA-256"):
        assert Wanted(Part.AGENT, {"archive": digest}).stamp


def test_what_was_not_applied_is_not_stamped() -> None:
    """A roll that skips a part must not record the Mac as converged to it."""
    stamps = drift.applied(stamped(FIREWALL), AGENT)

    assert stamps == {"firewall": FIREWALL.stamp, "agent": AGENT.stamp}


def test_parts_that_are_wanted_no_more_are_taken_away_in_reverse() -> None:
    stamps = stamped(FIREWALL, AGENT, JOB)

    assert drift.retired([FIREWALL], stamps) == [Part.AGENT_JOB, Part.AGENT]
    assert drift.removed(stamps, Part.AGENT) == stamped(FIREWALL, JOB)


def test_stamps_of_a_newer_release_are_kept_and_not_acted_on() -> None:
    stamps = {"from-the-future": A, **stamped(FIREWALL)}

    assert drift.retired([FIREWALL], stamps) == []
    assert "from-the-future" in drift.applied(stamps, AGENT)


def test_tart_is_no_part() -> None:
    assert not [part for part in Part if "tart" in part]


def test_stamps_come_back_from_their_file() -> None:
    stamps = stamped(FIREWALL, AGENT)

    assert drift.load(drift.dump(stamps)) == stamps
    assert drift.dump(stamps) == drift.dump(dict(reversed([*stamps.items()])))


@pytest.mark.parametrize(
    "contents",
    [
        *(b"", b"\0\0", b"{", b"[]", b'"firewall"', b'{"firewall": 1}', b'{"firewall": "x"}'),
        b"[" * 60_000,
        b'{"firewall": "' + A.encode() + b'"}' + b" " * drift.LONGEST_FILE,
    ],
    ids=lambda contents: repr(contents[:20]),
)
def test_a_file_that_cannot_be_used_says_nothing(contents: bytes) -> None:
    assert drift.load(contents) == {}


@given(st.binary(max_size=200))
def test_any_file_gives_stamps(contents: bytes) -> None:
    assert all(len(stamp) == 64 for stamp in drift.load(contents).values())
