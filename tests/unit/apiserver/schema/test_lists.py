from __future__ import annotations

from typing import Any

import pytest

from bramley.apiserver.schema import structural

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "note": {"type": "string"},
                "tags": {
                    "type": "array",
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string"},
                },
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "tags": {
                                "type": "array",
                                "x-kubernetes-list-type": "set",
                                "items": {"type": "string"},
                            },
                        },
                    },
                },
            },
        }
    },
}


def duplicates(spec: Any, old: Any = None) -> list[tuple[str, str]]:
    before = None if old is None else {"spec": old}
    causes = structural.compile(SCHEMA).validate({"spec": spec}, before)
    return [(cause.field, cause.message) for cause in causes]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"tags": ["a", "b"]}, []),
        ({"tags": ["a", "b", "a", "a"]}, [("spec.tags[2]", 'Duplicate value: "a"')]),
        (
            {"ports": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
            [("spec.ports[2]", 'Duplicate value: {"name":"a"}')],
        ),
        (
            {"ports": [{"name": "a", "tags": ["x", "x"]}]},
            [("spec.ports[0].tags[1]", 'Duplicate value: "x"')],
        ),
    ],
)
def test_duplicates_are_found_in_sets_and_maps(spec: Any, found: list[tuple[str, str]]) -> None:
    assert found == duplicates(spec)


def test_existing_duplicates_do_not_block_other_changes() -> None:
    old = {"tags": ["a", "a"]}

    assert duplicates({"tags": ["a", "a"], "note": "new"}, old) == []
    assert duplicates({"tags": ["a", "a"], "note": "new"}, {"tags": ["a"]}) != []
