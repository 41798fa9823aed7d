"""Shapes of built-in kinds: wrong types are refused in Go's words, unknown fields are dropped and named."""

from __future__ import annotations

import pytest

from bramley.apiserver.kinds import table
from bramley.apiserver.shapes import WrongShape, checker

POD = checker("v1.Pod")


def test_unknown_fields_are_dropped_and_named_with_their_place() -> None:
    pod = {"spec": {"containers": [{"name": "a", "colour": 1}], "size": 2}, "more": {}}
    unknown: list[str] = []

    POD(pod, "", unknown)

    assert pod == {"spec": {"containers": [{"name": "a"}]}}
    assert unknown == ["spec.containers[0].colour", "spec.size", "more"]


def test_nulls_and_empty_collections_are_left_out() -> None:
    pod = {
        "metadata": {"labels": {}, "name": None},
        "spec": {"tolerations": [], "securityContext": {}},
    }

    POD(pod, "", [])

    assert pod == {"metadata": {}, "spec": {"securityContext": {}}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"spec": {"containers": "x"}},
            "string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"spec": {"containers": [{"name": 1}]}},
            "number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            {"spec": {"priority": 2**40}},
            "number 1099511627776 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            {"spec": {"priority": True}},
            "bool into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            {"metadata": {"labels": ["x"]}},
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        ({"spec": []}, "array into Go struct field Pod.spec of type v1.PodSpec"),
    ],
)
def test_a_wrong_type_is_refused_in_the_words_of_go(body: dict[str, object], said: str) -> None:
    with pytest.raises(WrongShape, match="cannot unmarshal") as refused:
        POD(body, "", [])
    assert str(refused.value) == f"json: cannot unmarshal {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yesterday", 'cannot parse "yesterday" as "2006"'),
        ("2026-01-01T00:00:00Z", 'cannot parse "Z" as ".000000"'),
        ("2026-01-01T00:00:00.000000", 'cannot parse "" as "Z07:00"'),
        ("2026-01-01T00:00:00.000000Zx", 'extra text: "x"'),
    ],
)
def test_a_time_is_refused_where_it_goes_wrong(text: str, said: str) -> None:
    with pytest.raises(WrongShape) as refused:
        checker("v1.Lease")({"spec": {"renewTime": text}}, "", [])
    assert said in str(refused.value)


def test_every_built_in_kind_has_a_shape() -> None:
    # What is only ever read has none to be written in.
    for resource in (each for each in table.builtin() if not each.is_computed):
        assert checker(resource.rules.shape)({}, "", []) == {}


def test_quantities_are_stored_in_one_form() -> None:
    pod = {"spec": {"containers": [{"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}}

    POD(pod, "", [])

    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m", "memory": "1Gi"}}
