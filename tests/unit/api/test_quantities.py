"""Quantities: parsed exactly, written in canonical form; the form is compared with a real server in the contract suite."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.quantities import InvalidQuantity, canonical, parse

SUFFIXES = ["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-3"]
TEXTS = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.integers(-(10**6), 10**6) | st.decimals(-1000, 1000, places=3).map(str),
    st.sampled_from(SUFFIXES),
)


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("1000", "1k"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("100Ki", "100Ki"),
        ("1023", "1023"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("0", "0"),
        ("-1.5", "-1500m"),
        (".5", "500m"),
        ("0.0000000001", "1n"),
    ],
)
def test_canonical_form(given_text: str, stored: str) -> None:
    assert canonical(given_text) == stored


@given(TEXTS)
def test_canonical_form_is_stable_and_keeps_the_amount(text: str) -> None:
    once = canonical(text)

    assert canonical(once) == once
    # Whole units are rounded up, by less than one.
    assert Fraction(0) <= parse(once).value - parse(text).value < 1


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", "1Zi", "--1", "1e99", ".", "9" * 5000])
def test_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuantity):
        parse(text)
