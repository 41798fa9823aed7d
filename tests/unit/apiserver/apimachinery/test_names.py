"""Names, label keys and values: valid ones pass, invalid ones are refused with a reason."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery import names


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True))
def test_a_label_is_also_a_subdomain_and_a_label_value(text: str) -> None:
    assert names.label(text) == names.subdomain(text) == names.label_value(text) == []


@given(st.text(max_size=8))
def test_invalid_name_has_an_error(text: str) -> None:
    fits = bool(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text))

    assert (names.label(text) == []) is fits


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (names.label("a.b"), "must not contain dots"),
        (names.label("a" * 64), "must be no more than 63 characters"),
        (names.subdomain("a" * 254), "must be no more than 253 characters"),
        (names.path_segment(".."), "may not be '..'"),
        (names.path_segment("a/b"), "may not contain '/'"),
        (names.config_key("..x"), "must not start with '..'"),
        (names.config_key(".."), "must not be '..'"),
        (names.qualified_name("/x"), "prefix part must be non-empty"),
        (names.qualified_name("a/"), "name part must be non-empty"),
        (names.label_value("é" * 40), "must be no more than 63 characters"),
    ],
)
def test_broken_rule_is_named(found: list[str], expected: str) -> None:
    assert expected in found


@given(st.integers(0, 2**32), st.text(alphabet="ab-", max_size=80))
def test_a_generated_name_keeps_its_base_and_fits_a_label(seed: int, base: str) -> None:
    name = names.generate(base, random.Random(seed))

    assert name[:-5] == base[:58]
    assert set(name[-5:]) <= set(names.GENERATED_ALPHABET)
    assert len(name) <= 63


def test_generate_name_may_end_with_a_dash_and_a_name_may_not() -> None:
    assert names.subdomain("a-", True) == []
    assert names.subdomain("a-") != []
