"""Strategic merge patches: directives and keys as tables, and the law that a computed patch leads to what it was made from."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.strategic.lists import BadPatch, ListOfLists, Unmergeable
from bramley.apiserver.strategic.merge import NoSuchField, merge

Json = dict[str, Any]

POD_SPEC = "core/v1.PodSpec"
META = "meta/v1.ObjectMeta"

MERGED = [
    ({"hostname": "a"}, {"hostname": "b"}, {"hostname": "b"}),
    ({"hostname": "a"}, {"hostname": None}, {}),
    ({}, {"nodeSelector": {"a": None, "b": "c"}}, {"nodeSelector": {"b": "c"}}),
    (
        {"nodeSelector": {"a": "b"}},
        {"nodeSelector": {"c": "d"}},
        {"nodeSelector": {"a": "b", "c": "d"}},
    ),
    (
        {"nodeSelector": {"a": "b"}},
        {"nodeSelector": {"$patch": "replace", "c": "d"}},
        {"nodeSelector": {"c": "d"}},
    ),
    ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"$patch": "delete"}}, {"nodeSelector": {}}),
    (
        {"nodeSelector": {"a": "b", "c": "d"}},
        {"nodeSelector": {"$retainKeys": ["c"]}},
        {"nodeSelector": {"c": "d"}},
    ),
    ({}, {"nodeSelector": {"$patch": "delete"}}, {}),
    (
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    (
        {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
        {"containers": [{"name": "a", "image": "y"}]},
        {"containers": [{"name": "a", "image": "y"}, {"name": "b"}]},
    ),
    (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "c"}]},
        {"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]},
    ),
    (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "delete"}]},
        {"containers": [{"name": "b"}]},
    ),
    (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "c"}, {"$patch": "replace"}]},
        {"containers": [{"name": "c"}]},
    ),
    (
        {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]},
        {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]},
        {"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]},
    ),
    (
        {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 2}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 2}, {"containerPort": 1}]}]},
    ),
]
REFUSED = [
    ({"containers": [{"name": "a"}]}, {"containers": [{"image": "x"}]}, Unmergeable),
    ({"containers": [{"name": "a"}]}, {"containers": [{"$patch": "merge"}]}, Unmergeable),
    ({"containers": [{"name": "a"}]}, {"containers": [{"$patch": "odd"}]}, Unmergeable),
    ({"containers": [{"name": "a"}]}, {"containers": ["a"]}, Unmergeable),
    ({"containers": [{"name": "a"}]}, {"$setElementOrder/containers": "a"}, Unmergeable),
    ({"containers": [{"name": "a"}]}, {"$setElementOrder": []}, BadPatch),
    ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"$patch": "odd"}}, Unmergeable),
    ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"$retainKeys": "a"}}, BadPatch),
    ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"$retainKeys": ["a"], "b": "c"}}, BadPatch),
    ({"odd": {}}, {"odd": {}}, NoSuchField),
    ({"odd": []}, {"odd": []}, NoSuchField),
]


@pytest.mark.parametrize(("original", "patch", "expected"), MERGED)
def test_a_patch_of_a_pod_spec(original: Json, patch: Json, expected: Json) -> None:
    before = copy.deepcopy(original)

    assert expected == merge(original, copy.deepcopy(patch), POD_SPEC)
    assert before == original


@pytest.mark.parametrize(("original", "patch", "wrong"), REFUSED)
def test_a_patch_that_cannot_be_merged(original: Json, patch: Json, wrong: type[Exception]) -> None:
    with pytest.raises(wrong):
        merge(original, patch, POD_SPEC)


def test_delete_from_primitive_list_removes_values() -> None:
    original = {"finalizers": ["a", "b", "c"]}

    merged = merge(original, {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}, META)

    assert merged == {"finalizers": ["a", "c"]}


def test_new_values_of_a_primitive_list_come_first() -> None:
    assert merge({"finalizers": ["a", "b"]}, {"finalizers": ["c"]}, META) == {
        "finalizers": ["c", "a", "b"]
    }


def test_a_list_in_a_list_is_refused() -> None:
    with pytest.raises(ListOfLists):
        merge({"finalizers": [["a"]]}, {"finalizers": [["b"]]}, META)


def test_an_order_that_contradicts_the_patch_is_refused() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
        "containers": [{"name": "b"}, {"name": "a"}],
    }

    with pytest.raises(Unmergeable, match="The order in patch list"):
        merge({"containers": [{"name": "a"}, {"name": "b"}]}, patch, POD_SPEC)


def test_new_item_takes_the_position_of_a_deleted_one() -> None:
    """As on a real server, for items that the order does not name."""
    patch = {
        "$setElementOrder/containers": [{"name": "new"}],
        "containers": [{"name": "new"}, {"name": "gone", "$patch": "delete"}],
    }

    merged = merge({"containers": [{"name": "kept"}, {"name": "gone"}]}, patch, POD_SPEC)

    assert [each["name"] for each in merged["containers"]] == ["kept", "new"]


def test_unpatched_values_are_shared() -> None:
    original: Json = {"containers": [{"name": "a", "env": []}], "tolerations": [{"key": "a"}]}

    merged = merge(original, {"hostname": "b"}, POD_SPEC)

    assert merged["containers"] is original["containers"]
    assert merged["tolerations"] is original["tolerations"]


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
TEXTS = st.sampled_from(["x", "y", "z"])
ENV = st.lists(
    st.fixed_dictionaries({"name": NAMES, "value": TEXTS}),
    min_size=1,
    max_size=4,
    unique_by=lambda each: str(each["name"]),
)
CONTAINER = st.fixed_dictionaries({"name": NAMES}, optional={"image": TEXTS, "env": ENV})
SPECS = st.fixed_dictionaries(
    {
        "containers": st.lists(
            CONTAINER, min_size=1, max_size=4, unique_by=lambda each: str(each["name"])
        )
    },
    optional={
        "hostname": TEXTS,
        "nodeSelector": st.dictionaries(NAMES, TEXTS, min_size=1, max_size=3),
        "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), min_size=1, max_size=3),
    },
)
KEYED = {"containers": "name", "env": "name"}


@given(SPECS, SPECS)
def test_computed_patch_produces_the_target(old: Json, new: Json) -> None:
    assert new == merge(old, difference(old, new), POD_SPEC)


@given(SPECS, SPECS)
def test_patch_is_idempotent(old: Json, new: Json) -> None:
    once = merge(old, difference(old, new), POD_SPEC)

    assert once == merge(once, difference(old, new), POD_SPEC)


@given(SPECS)
def test_merging_an_object_with_itself_changes_nothing(spec: Json) -> None:
    assert spec == merge(spec, copy.deepcopy(spec), POD_SPEC)


def difference(old: Json, new: Json) -> Json:
    """Return a patch as kubectl makes one: nulls for what goes, directives for lists with keys."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = copy.deepcopy(value)
        elif key in KEYED:
            patch |= _list_difference(key, old[key], value)
        elif isinstance(value, dict):
            patch[key] = difference(old[key], value)
        elif value != old[key]:
            patch[key] = copy.deepcopy(value)
    return patch


def _list_difference(key: str, old: list[Json], new: list[Json]) -> Json:
    names = {each["name"]: each for each in old}
    kept = {each["name"] for each in new}
    items = [
        {**difference(names.get(each["name"], {}), each), "name": each["name"]} for each in new
    ]
    gone = [{"name": name, "$patch": "delete"} for name in names if name not in kept]
    order = [{"name": each["name"]} for each in new]
    return {key: items + gone, f"$setElementOrder/{key}": order}
