"""Sets of fields: their written form comes back, and they behave as sets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.apply import fieldpath

ELEMENTS = st.sampled_from(
    ["f:a", "f:b", 'k:{"name":"x"}', 'k:{"name":"y"}', 'v:"t"', "v:1", "i:0"]
)
PATHS = st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple)
SETS = st.lists(PATHS, max_size=8).map(fieldpath.from_paths)


@given(SETS)
def test_field_set_round_trips(one: fieldpath.FieldSet) -> None:
    assert fieldpath.from_wire(one.to_wire()) == one


@given(st.lists(PATHS, max_size=8))
def test_set_has_the_paths_it_was_built_from(paths: list[fieldpath.Path]) -> None:
    assert set(fieldpath.from_paths(paths).paths()) == set(paths)


@given(SETS, SETS)
def test_union_intersection_and_difference_are_those_of_paths(
    one: fieldpath.FieldSet, other: fieldpath.FieldSet
) -> None:
    mine, theirs = set(one.paths()), set(other.paths())

    assert set((one | other).paths()) == mine | theirs
    assert set((one & other).paths()) == mine & theirs
    assert set((one - other).paths()) == mine - theirs


@pytest.mark.parametrize("wrong", [[], {"x": {}}, {"f:a": 1}, {"k:{": {}}, {"q:a": {}}])
def test_invalid_field_set_is_refused(wrong: Any) -> None:
    with pytest.raises(fieldpath.InvalidFieldSet):
        fieldpath.from_wire(wrong)


def test_a_member_with_fields_below_it_is_marked() -> None:
    both = fieldpath.from_paths([("f:a",), ("f:a", "f:b")])

    assert both.to_wire() == {"f:a": {".": {}, "f:b": {}}}


def test_keys_of_an_item_are_written_in_order() -> None:
    assert fieldpath.by_keys({"protocol": "TCP", "port": 1}) == 'k:{"port":1,"protocol":"TCP"}'


def test_paths_are_formatted_as_in_errors() -> None:
    path = ("f:spec", 'k:{"name":"a","port":1}', "f:image", 'v:"x"')

    assert fieldpath.format_path(path) == '.spec[name="a",port=1].image[="x"]'
