"""Shapes of built-in kinds: wrong types are refused in Go's words, unknown fields are dropped and named."""

from __future__ import annotations

import pytest

from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.kinds.shapes import WrongShape, checker

POD = checker("v1.Pod")


def test_unknown_fields_are_dropped_and_reported_with_their_path() -> None:
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
    ("body", "message"),
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
def test_wrong_type_is_refused_with_the_message_of_go(
    body: dict[str, object], message: str
) -> None:
    with pytest.raises(WrongShape, match="cannot unmarshal") as refused:
        POD(body, "", [])
    assert str(refused.value) == f"json: cannot unmarshal {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", 'cannot parse "yesterday" as "2006"'),
        ("2026-01-01T00:00:00Z", 'cannot parse "Z" as ".000000"'),
        ("2026-01-01T00:00:00.000000", 'cannot parse "" as "Z07:00"'),
        ("2026-01-01T00:00:00.000000Zx", 'extra text: "x"'),
    ],
)
def test_invalid_time_is_refused_at_its_first_wrong_character(text: str, message: str) -> None:
    with pytest.raises(WrongShape) as refused:
        checker("v1.Lease")({"spec": {"renewTime": text}}, "", [])
    assert message in str(refused.value)


def test_every_built_in_kind_has_a_shape() -> None:
    # What is only ever read has none to be written in.
    for resource in (each for each in builtin_kinds.builtin() if not each.is_computed):
        assert checker(resource.strategy.shape)({}, "", []) == {}


def test_quantities_are_stored_in_one_form() -> None:
    pod = {"spec": {"containers": [{"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}}

    POD(pod, "", [])

    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"labels": []}},
        {"metadata": {"finalizers": {}}},
        {"spec": {"hostNetwork": ""}},
        {"spec": {"hostname": False}},
        {"metadata": {"generation": False}},
    ],
)
def test_empty_value_of_another_type_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(WrongShape, match="cannot unmarshal"):
        POD(body, "", [])


def test_zeroes_that_go_does_not_distinguish_from_absent_are_left_out() -> None:
    pod = {
        "metadata": {"name": "", "generation": 0},
        "spec": {"restartPolicy": "", "hostNetwork": False, "enableServiceLinks": False},
    }

    POD(pod, "", [])

    assert pod == {"metadata": {}, "spec": {"enableServiceLinks": False}}


def test_null_in_a_map_becomes_the_zero_value() -> None:
    pod: dict[str, object] = {"spec": {"overhead": {"cpu": None}}}
    secret: dict[str, object] = {"data": {"k": None}}

    POD(pod, "", [])
    checker("v1.Secret")(secret, "", [])

    assert (pod, secret) == ({"spec": {"overhead": {"cpu": "0"}}}, {"data": {"k": ""}})


@pytest.mark.parametrize("port", [2**31, -(2**31) - 1, True, 1.5, []])
def test_int_or_string_is_limited_to_32_bits(port: object) -> None:
    with pytest.raises(WrongShape, match="of type int32"):
        checker("v1.TCPSocketAction")({"port": port}, "", [])


@pytest.mark.parametrize(("text", "byte"), [("MTI", 0), ("MTIzN", 4), ("M!", 1)])
def test_truncated_base64_is_reported_at_the_last_complete_group(text: str, byte: int) -> None:
    with pytest.raises(WrongShape, match=f"illegal base64 data at input byte {byte}$"):
        checker("v1.Secret")({"data": {"k": text}}, "", [])
