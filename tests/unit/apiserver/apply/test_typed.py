"""Objects beside their schema: repeated items, order of merged lists, and what taking fields out leaves."""

from __future__ import annotations

from typing import Any

import pytest

from bramley.apiserver.apply import fieldpath, schema, typed

Json = dict[str, Any]

SPEC = schema.of_struct("core/v1.PodSpec")
CONTAINER = schema.of_struct("core/v1.Container")
CRD = schema.of_crd(
    {
        "type": "object",
        "properties": {
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "whole": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": {"a": {"type": "string"}},
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
)


def named(*names: str) -> list[Json]:
    return [{"name": name} for name in names]


def env(*names: str) -> Json:
    return {"env": [{"name": name, "value": str(at)} for at, name in enumerate(names)]}


def paths(fields: fieldpath.FieldSet) -> set[str]:
    return {fieldpath.format_path(path) for path in fields.paths()}


@pytest.mark.parametrize(
    ("live", "config", "expected"),
    [
        ("ab", "c", "abc"),
        ("ab", "b", "ab"),
        ("ab", "ba", "ba"),
        ("abc", "ca", "bca"),
        ("", "ab", "ab"),
        ("axb", "ba", "xba"),
    ],
)
def test_shared_items_take_the_order_of_the_configuration(
    live: str, config: str, expected: str
) -> None:
    merged = typed.merge({"containers": named(*live)}, {"containers": named(*config)}, SPEC)

    assert "".join(each["name"] for each in merged["containers"]) == expected


def test_duplicate_items_of_a_live_object_stay() -> None:
    merged = typed.merge(env("a", "a", "b"), env("c"), CONTAINER)

    assert [each["name"] for each in merged["env"]] == ["a", "a", "b", "c"]


def test_duplicate_items_are_owned_as_one() -> None:
    assert paths(typed.to_field_set(env("a", "a"), CONTAINER)) == {'.env[name="a"]'}


def test_duplicated_item_is_added_and_removed_as_one() -> None:
    begins = typed.compare(env("a"), env("a", "a"), CONTAINER)
    ends = typed.compare(env("a", "a"), env("a"), CONTAINER)

    assert '.env[name="a"]' in paths(begins.added)
    assert '.env[name="a"].value' in paths(begins.removed)
    assert '.env[name="a"]' in paths(ends.removed)
    assert '.env[name="a"].value' in paths(ends.added)


def test_emptied_field_keeps_its_owner() -> None:
    """Otherwise another manager would lose the ownership of a struct that it keeps."""
    live = {"resources": {"requests": {"cpu": "1"}}}
    gone = fieldpath.from_paths([("f:resources", "f:requests")])

    left = typed.remove(live, gone, CONTAINER)

    assert left == {"resources": None}
    assert "f:resources" not in typed.compare(live, left, CONTAINER).removed.members
    assert typed.without_removed_fields(left, live) == {}


def test_atomic_field_is_a_leaf() -> None:
    config = {"whole": {"a": "b"}, "set": ["x"], "free": {"deep": {"er": [1, 2]}}}

    assert paths(typed.to_field_set(config, CRD)) == {
        ".whole",
        '.set[="x"]',
        ".free.deep",
        ".free.deep.er",
    }


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"odd": 1}, ".odd: field not declared in schema"),
        ({"set": ["a", "a"]}, '.set: duplicate entries for key [="a"]'),
        ({"set": [{}]}, ".set: element 0: associative list without keys has an element"),
        ({"set": "a"}, ".set: expected list, got &{a}"),
        ({"whole": {"b": "c"}}, ".whole.b: field not declared in schema"),
        ({"metadata": {"labels": {"a": 1}}}, ".metadata.labels.a: expected string, got"),
    ],
)
def test_invalid_configuration_is_refused_with_its_path(config: Json, why: str) -> None:
    assert (typed.validation_error(config, CRD) or "").startswith(why)


def test_default_protocol_is_part_of_the_key_of_a_port() -> None:
    ports = {"ports": [{"containerPort": 1}]}

    keys = '.ports[containerPort=1,protocol="TCP"]'
    assert keys in paths(typed.to_field_set(ports, CONTAINER))
