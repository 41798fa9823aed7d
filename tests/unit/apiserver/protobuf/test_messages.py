"""Messages of built-in kinds: what a real server wrote is read as the JSON that it shows, and laws over any object."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.fields import structs
from bramley.apiserver.protobuf import messages, well_known_types, wire
from tests.unit.apiserver.protobuf import encoding

Json = dict[str, Any]

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
CONFIG_MAP = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "a", "labels": {"x": "y"}},
    "data": {"k": "v", "empty": ""},
}


class UnknownKind(Exception):
    """Raised for an object of no built-in kind; the server refuses it before it reads on."""


def read(data: bytes) -> Json:
    given = messages.open_envelope(data)
    name = structs.of_kind(given.api_version, given.kind)
    if name is None:
        raise UnknownKind(given.kind)
    identity = {"kind": given.kind, "apiVersion": given.api_version}
    return {**identity, **messages.read(given.message, name)}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: str(each["path"]))
def test_recorded_protobuf_decodes_to_the_recorded_json(recorded: Json) -> None:
    assert without_nulls(recorded["json"]) == without_nulls(
        read(base64.b64decode(recorded["protobuf"]))
    )


def test_unknown_field_numbers_are_skipped() -> None:
    message = encoding.message(CONFIG_MAP, "core/v1.ConfigMap")
    more = b"".join(
        [
            encoding.entry(500, "x", "string"),
            encoding.entry(501, 3, "int64"),
            encoding.entry(502, 1.5, "float64"),
            message,
        ]
    )

    assert read(encoding.envelope("v1", "ConfigMap", more)) == CONFIG_MAP


def test_empty_strings_are_decoded_only_where_go_prints_them() -> None:
    port = encoding.entry(1, "", "string") + encoding.entry(3, 0, "int32")

    assert messages.read(memoryview(port), "core/v1.ContainerPort") == {"containerPort": 0}


def test_fields_without_omitempty_are_always_decoded() -> None:
    assert messages.read(memoryview(b""), "core/v1.ContainerPort") == {"containerPort": 0}


def test_pointer_to_zero_is_decoded() -> None:
    spec = encoding.message({"replicas": 0}, "apps/v1.DeploymentSpec")

    assert messages.read(memoryview(spec), "apps/v1.DeploymentSpec")["replicas"] == 0


def test_negative_numbers_keep_their_sign() -> None:
    assert messages.read(
        memoryview(encoding.message({"value": -5}, "scheduling/v1.PriorityClass")),
        "scheduling/v1.PriorityClass",
    ) == {"value": -5}


def test_packed_numbers_are_decoded() -> None:
    packed = bytes(
        [0x22, 3, 1, 2, 3]
    )  # supplementalGroups of a PodSecurityContext has the number 4
    read_back = messages.read(memoryview(packed), "core/v1.PodSecurityContext")

    assert read_back == {"supplementalGroups": [1, 2, 3]}


def test_message_in_two_parts_is_merged() -> None:
    halves = [{"metadata": {"name": "a"}}, {"metadata": {"namespace": "b"}}]
    message = b"".join(encoding.message(each, "core/v1.ConfigMap") for each in halves)

    found = read(encoding.envelope("v1", "ConfigMap", message))

    assert found["metadata"] == {"name": "a", "namespace": "b"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty data"),
        (b"k8s\0", "empty body"),
        (b"{}", "expected prefix [107 56 115 0]"),
        (b"k8s\0\x0a", "unexpected EOF"),
        (b"k8s\0\x0a\x05ab", "unexpected EOF"),
        (b"k8s\0\x08\x01", "wrong wireType = 0"),
        (b"k8s\0\x00\x01", "illegal tag 0"),
        (b"k8s\0\x0c", "wiretype end group"),
        (b"k8s\0\x0b", "illegal wireType 3"),
        (b"k8s\0" + b"\xff" * 11, "integer overflow"),
        (b"k8s\0\x0a" + b"\xff" * 9 + b"\x01", "negative length"),
        (b"k8s\0\x0d\x01", "unexpected EOF"),
    ],
)
def test_invalid_body_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(wire.Malformed) as refused:
        messages.open_envelope(data)

    assert why in str(refused.value)


def test_a_message_that_is_too_deep_is_refused() -> None:
    name = "apiextensions/v1.JSONSchemaProps"
    deep = b""
    for _ in range(messages.DEPTH_LIMIT + 2):
        deep = encoding.varint(28 << 3 | 2) + encoding.varint(len(deep)) + deep

    with pytest.raises(wire.Malformed, match="max depth"):
        messages.read(memoryview(deep), name)


@pytest.mark.parametrize(
    ("nanoseconds", "shown"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (90_000_000_000, "1m30s"),
        (3_600_000_000_000, "1h0m0s"),
        (-1_500_000_000, "-1.5s"),
    ],
)
def test_durations_are_written_as_go_does(nanoseconds: int, shown: str) -> None:
    assert well_known_types.duration_text(nanoseconds) == shown


TEXTS = st.text(max_size=4)
FULL = st.text("abc", min_size=1, max_size=3)
INTEGERS = st.integers(-(2**31), 2**31 - 1)
METADATA = st.fixed_dictionaries(
    {"name": FULL},
    optional={
        "labels": st.dictionaries(FULL, TEXTS, min_size=1, max_size=3),
        "generation": st.integers(1, 2**62),
        "creationTimestamp": st.just("2024-01-02T03:04:05Z"),
        "deletionGracePeriodSeconds": st.integers(-5, 5),
        "finalizers": st.lists(TEXTS, min_size=1, max_size=3),
    },
)
PORTS = st.fixed_dictionaries(
    {"port": INTEGERS}, optional={"name": FULL, "targetPort": INTEGERS | FULL}
)
SERVICES = st.fixed_dictionaries(
    {"kind": st.just("Service"), "apiVersion": st.just("v1"), "metadata": METADATA},
    optional={
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "ports": st.lists(PORTS, min_size=1, max_size=3),
                "selector": st.dictionaries(FULL, TEXTS, min_size=1, max_size=2),
                "publishNotReadyAddresses": st.just(True),
                "allocateLoadBalancerNodePorts": st.booleans(),
                "healthCheckNodePort": st.integers(1, 9),
            },
        )
    },
)


@given(SERVICES)
def test_object_round_trips(service: Json) -> None:
    assert read(encoding.whole(service)) == service


@given(SERVICES, st.data())
def test_cut_bytes_are_refused_or_read_but_never_crash(service: Json, data: st.DataObject) -> None:
    whole = encoding.whole(service)
    cut = whole[: data.draw(st.integers(0, len(whole)))]

    with contextlib.suppress(wire.Malformed, UnknownKind):
        read(cut)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read_but_never_crash(data: bytes) -> None:
    with contextlib.suppress(wire.Malformed):
        messages.read(memoryview(data), "core/v1.Pod")
