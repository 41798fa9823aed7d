"""Drift: one hash per part, stamps of applied parts only, and untrusted stamp files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.errors import BadConfiguration
from bramley.host import drift
from bramley.host.drift import DesiredPart, Part

A, B = drift.digest(b"a"), drift.digest(b"b")
FIREWALL = DesiredPart(Part.FIREWALL, {"anchor": A, "boot-job": B})
AGENT = DesiredPart(Part.AGENT, {"archive": A})
JOB = DesiredPart(Part.AGENT_JOB, {"plist": A})


def stamped(*parts: DesiredPart) -> drift.Stamps:
    stamps: drift.Stamps = {}
    for part in parts:
        stamps = drift.with_part(stamps, part)
    return stamps


def test_stamp_is_the_hash_of_the_part_and_its_files() -> None:
    text = f"firewall\0anchor\0{A}\0boot-job\0{B}\0"

    assert FIREWALL.stamp == drift.digest(text.encode())
    assert DesiredPart(Part.FIREWALL, {"boot-job": B, "anchor": A}).stamp == FIREWALL.stamp


@pytest.mark.parametrize(
    "other",
    [
        DesiredPart(Part.FIREWALL, {"anchor": B, "boot-job": B}),
        DesiredPart(Part.FIREWALL, {"anchor": B, "boot-job": A}),
        DesiredPart(Part.FIREWALL, {"anchor": A}),
        DesiredPart(Part.FIREWALL, {"anchor": A, "job": B}),
        DesiredPart(Part.AGENT, {"anchor": A, "boot-job": B}),
    ],
)
def test_every_difference_changes_the_stamp(other: DesiredPart) -> None:
    assert other.stamp != FIREWALL.stamp


@pytest.mark.parametrize("digest", ["", "0" * 63, "Z" * 64, A + "\n"])
def test_invalid_digest_is_refused(digest: str) -> None:
    with pytest.raises(BadConfiguration, match="part agent: 'archive' has no SHA-256"):
        assert DesiredPart(Part.AGENT, {"archive": digest}).stamp


def test_only_applied_parts_are_stamped() -> None:
    """A roll that skips a part must not record the Mac as converged to it."""
    stamps = drift.with_part(stamped(FIREWALL), AGENT)

    assert stamps == {"firewall": FIREWALL.stamp, "agent": AGENT.stamp}


def test_retired_parts_are_removed_in_reverse_order() -> None:
    stamps = stamped(FIREWALL, AGENT, JOB)

    assert drift.retired_parts([FIREWALL], stamps) == [Part.AGENT_JOB, Part.AGENT]
    assert drift.without_part(stamps, Part.AGENT) == stamped(FIREWALL, JOB)


def test_stamps_of_a_newer_release_are_kept_and_ignored() -> None:
    stamps = {"from-the-future": A, **stamped(FIREWALL)}

    assert drift.retired_parts([FIREWALL], stamps) == []
    assert "from-the-future" in drift.with_part(stamps, AGENT)


def test_tart_is_not_a_part() -> None:
    assert not [part for part in Part if "tart" in part]


def test_stamps_round_trip() -> None:
    stamps = stamped(FIREWALL, AGENT)

    assert drift.load(drift.dump(stamps)) == stamps
    assert drift.dump(stamps) == drift.dump(dict(reversed([*stamps.items()])))


@pytest.mark.parametrize(
    "contents",
    [
        *(b"", b"\0\0", b"{", b"[]", b'"firewall"', b'{"firewall": 1}', b'{"firewall": "x"}'),
        b"[" * 60_000,
        b'{"firewall": "' + A.encode() + b'"}' + b" " * drift.MAX_STAMPS_BYTES,
    ],
    ids=lambda contents: repr(contents[:20]),
)
def test_invalid_file_has_no_stamps(contents: bytes) -> None:
    assert drift.load(contents) == {}


@given(st.binary(max_size=200))
def test_any_bytes_are_loaded_without_an_error(contents: bytes) -> None:
    assert all(len(stamp) == 64 for stamp in drift.load(contents).values())
