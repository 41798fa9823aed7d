"""Merge and JSON patches: the tables of their RFCs, and the laws that hold for any document."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery.patches import PatchFailed, apply, merge, same

KEYS = st.sampled_from(["a", "b", "c", "a/b", "m~n", ""])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "y"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
# What may stand in an object that a merge patch can produce: no null as a member, at any depth of objects.
KEPT_SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "y"])
KEPT = st.recursive(
    KEPT_SCALARS | st.lists(VALUES, max_size=2),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
KEPT_OBJECTS = st.dictionaries(KEYS, KEPT, max_size=4)

RFC_7386 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

RFC_6902 = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
    (
        {"foo": ["bar", "baz"]},
        [{"op": "add", "path": "/foo/1", "value": "qux"}],
        {"foo": ["bar", "qux", "baz"]},
    ),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [
            {"op": "test", "path": "/baz", "value": "qux"},
            {"op": "test", "path": "/foo/1", "value": 2},
        ],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"g": {}}}],
        {"foo": "bar", "child": {"g": {}}},
    ),
    (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": 1, "xyz": 2}],
        {"foo": "bar", "baz": 1},
    ),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["x"]}], {"foo": ["bar", ["x"]]}),
    ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
]

FAILING = [
    ({"baz": "qux"}, {"op": "test", "path": "/baz", "value": "bar"}),
    ({"foo": "bar"}, {"op": "add", "path": "/baz/bat", "value": "qux"}),
    ({"~1": 10}, {"op": "test", "path": "/~01", "value": "10"}),
    ({"a": 1}, {"op": "test", "path": "/a", "value": True}),
    ({"a": []}, {"op": "add", "path": "/a/1", "value": 1}),
    ({"a": [1]}, {"op": "add", "path": "/a/x", "value": 1}),
    ({"a": [1]}, {"op": "remove", "path": "/a/1"}),
    ({"a": 1}, {"op": "remove", "path": "/b"}),
    ({"a": 1}, {"op": "remove", "path": "a"}),
    ({"a": 1}, {"op": "move", "from": "/b", "path": "/a"}),
    ({"a": 1}, {"op": "shuffle", "path": "/a"}),
    ({"a": 1}, {"op": "add", "value": 1}),
    ({"a": 1}, {"op": "replace", "path": "", "value": 1}),
    ({"a": 1}, {}),
]


@pytest.mark.parametrize(("target", "patch", "merged"), RFC_7386)
def test_merge_examples_of_the_rfc(target: Any, patch: Any, merged: Any) -> None:
    assert merge(target, patch) == merged


@pytest.mark.parametrize(("document", "operations", "after"), RFC_6902)
def test_json_patch_examples_of_the_rfc(document: Any, operations: Any, after: Any) -> None:
    assert apply(copy.deepcopy(document), operations) == after


@pytest.mark.parametrize(("document", "operation"), FAILING)
def test_inapplicable_operation_fails(document: Any, operation: Any) -> None:
    with pytest.raises(PatchFailed):
        apply(copy.deepcopy(document), [operation])


@given(OBJECTS, OBJECTS)
def test_merging_changes_neither_side(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))

    merge(target, patch)

    assert (target, patch) == before


@given(OBJECTS, OBJECTS)
def test_merge_is_idempotent(target: Any, patch: Any) -> None:
    once = merge(target, patch)

    assert merge(once, patch) == once


@given(OBJECTS)
def test_an_empty_patch_changes_nothing(target: Any) -> None:
    assert merge(target, {}) == target


@given(KEPT_OBJECTS, KEPT_OBJECTS)
def test_any_object_can_be_patched_to_any_other(one: Any, other: Any) -> None:
    assert same(merge(one, difference(one, other)), other)


@given(OBJECTS, OBJECTS)
def test_unpatched_values_are_shared(target: Any, patch: Any) -> None:
    merged = merge(target, patch)

    assert all(merged[key] is target[key] for key in target if key not in patch)


@given(OBJECTS, KEYS, VALUES)
def test_added_value_passes_its_test_and_can_be_removed(target: Any, key: str, value: Any) -> None:
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    added = apply(copy.deepcopy(target), [{"op": "add", "path": pointer, "value": value}])

    assert apply(added, [{"op": "test", "path": pointer, "value": value}])
    without = {name: each for name, each in target.items() if name != key}
    assert apply(added, [{"op": "remove", "path": pointer}]) == without


@given(OBJECTS, KEYS, KEYS)
def test_move_equals_copy_and_remove(target: Any, origin: str, goal: str) -> None:
    if origin == goal or origin not in target:
        return
    one, two = (f"/{each.replace('~', '~0').replace('/', '~1')}" for each in (origin, goal))

    moved = apply(copy.deepcopy(target), [{"op": "move", "from": one, "path": two}])
    copied = [{"op": "copy", "from": one, "path": two}, {"op": "remove", "path": one}]

    assert moved == apply(copy.deepcopy(target), copied)


def test_copied_value_is_independent() -> None:
    operations: list[dict[str, Any]] = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/x", "value": 1},
    ]

    assert apply({"a": {}}, operations) == {"a": {}, "b": {"x": 1}}


@given(VALUES, VALUES)
def test_true_is_not_equal_to_one(one: Any, other: Any) -> None:
    assert same(one, copy.deepcopy(one))
    assert same(one, other) == same(other, one)
    assert not same({"a": one, "b": 1}, {"a": one, "b": True})


def difference(one: Any, other: Any) -> Any:
    """Return the merge patch from one object to another."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    patch: dict[str, Any] = {key: None for key in one if key not in other}
    for key, value in other.items():
        if key not in one:
            patch[key] = value
        elif not same(one[key], value):
            # An object replaces what is no object only as a whole.
            patch[key] = difference(one[key], value)
    return patch
