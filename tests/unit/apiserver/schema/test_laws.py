"""Properties of every schema and every value, tested with random ones."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.schema import structural, structural_validation
from bramley.apiserver.schema.patterns import BadPattern, compile_pattern

Json = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "a-b", "metadata"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)

LEAVES = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("integer")},
        optional={
            "minimum": st.integers(-3, 3),
            "default": st.integers(-2, 2),
            "nullable": st.booleans(),
            "enum": st.lists(st.integers(0, 3), min_size=1, max_size=3),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "maxLength": st.integers(0, 4),
            "default": st.text(max_size=3),
            "pattern": st.sampled_from(["^a", "b$", "[a-c]+"]),
            "format": st.sampled_from(["date-time", "ipv4", "duration", "unknown"]),
        },
    ),
    st.fixed_dictionaries({"type": st.sampled_from(["boolean", "number"])}),
    st.just({"x-kubernetes-int-or-string": True}),
    st.just({"x-kubernetes-preserve-unknown-fields": True}),
)


def _objects(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={
                "required": st.lists(NAMES, max_size=2),
                "x-kubernetes-preserve-unknown-fields": st.just(value=True),
                "nullable": st.booleans(),
                "default": st.just({}),
            },
        ),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner}),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"x-kubernetes-list-type": st.just("set"), "maxItems": st.integers(0, 3)},
        ),
    )


SCHEMAS = st.recursive(LEAVES, _objects, max_leaves=8)
ROOTS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.fixed_dictionaries({}, optional={"spec": SCHEMAS, "status": SCHEMAS}),
    }
)
OBJECTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("a.example.com/v1"),
        "kind": st.just("A"),
        "metadata": st.just({"name": "one"}),
    },
    optional={"spec": VALUES, "status": VALUES, "other": VALUES},
)


def settled(schema: Json, value: Json) -> Json:
    compiled = structural.compile(schema)
    compiled.apply_defaults(value)
    compiled.prune(value)
    return value


@given(ROOTS, OBJECTS)
def test_defaulting_and_pruning_are_idempotent(schema: Json, value: Json) -> None:
    once = settled(schema, copy.deepcopy(value))

    twice = settled(schema, copy.deepcopy(once))

    assert once == twice


@given(ROOTS, OBJECTS)
def test_after_pruning_nothing_is_left_to_prune(schema: Json, value: Json) -> None:
    compiled = structural.compile(schema)
    compiled.prune(value)

    assert compiled.prune(value) == []


@given(ROOTS, OBJECTS)
def test_identity_and_metadata_survive_pruning(schema: Json, value: Json) -> None:
    kept = settled(schema, copy.deepcopy(value))

    assert {**kept, **{name: value[name] for name in ("apiVersion", "kind", "metadata")}} == kept


@given(ROOTS, OBJECTS)
def test_every_value_is_accepted_or_refused(schema: Json, value: Json) -> None:
    for cause in structural.compile(schema).validate(value, None):
        assert cause.field
        assert cause.message
        assert cause.reason.startswith("FieldValue")


@given(ROOTS, OBJECTS)
def test_unchanged_object_is_never_refused(schema: Json, value: Json) -> None:
    assert structural.compile(schema).validate(value, copy.deepcopy(value)) == []


@given(ROOTS, OBJECTS)
def test_defaults_are_copied_so_that_objects_share_nothing(schema: Json, value: Json) -> None:
    compiled = structural.compile(schema)
    first, second = copy.deepcopy(value), copy.deepcopy(value)
    compiled.apply_defaults(first)
    before = copy.deepcopy(schema)

    _mutate(first)
    compiled.apply_defaults(second)

    assert before == schema
    assert second == settled_defaults(schema, value)


def settled_defaults(schema: Json, value: Json) -> Json:
    fresh = copy.deepcopy(value)
    structural.compile(copy.deepcopy(schema)).apply_defaults(fresh)
    return fresh


def _mutate(value: Any) -> None:
    if isinstance(value, dict):
        for item in list(value.values()):
            _mutate(item)
        value["scribbled"] = True
    elif isinstance(value, list):
        for item in value:
            _mutate(item)
        value.append("scribbled")


@given(VALUES)
def test_invalid_schema_never_raises(schema: Any) -> None:
    as_property = {"type": "object", "properties": {"spec": {"type": "string", "enum": [schema]}}}

    assert structural_validation.structural_causes(as_property, "root") == []


@given(st.text(alphabet="ab[](){}*+?|^$\\.:-,0123Pdwsz", max_size=12))
def test_every_pattern_is_compiled_or_refused(pattern: str) -> None:
    with contextlib.suppress(BadPattern):
        compile_pattern(pattern).search("abba\n")
