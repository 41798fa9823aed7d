"""The schema generator: each construct by itself, and that types read what schemas accept and no other types."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from bramley.api import schema
from bramley.api.crds import KINDS
from bramley.api.mac_host import MacHost
from bramley.api.meta import Fields, Object, Resource, Time
from bramley.api.schema import ValidationRule
from tests.unit.api.oracle import accepts

MOMENTS = ["2026-06-19T12:00:00Z", "2026-06-19T12:00:00.5+02:00", "2026-06-19t12:00:00z"]
ODD_TEXTS = ["", "a\n", "-a", "a-", " ", "a,b", "é"]
FOR_WRITERS = {"pattern", "minLength", "maxLength", "maxItems"}
NO_MOMENTS = ["", "today", "2026-06-19", "2026-06-19T12:00:00", "2026-13-01T00:00:00Z", "12:00"]


kinds = pytest.mark.parametrize("kind", [custom.kind for custom in KINDS])


class Inner(Fields, frozen=True, kw_only=True):
    """The inside."""

    checks: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule("self.low > 0", "low is low", field=".low"),
    )

    low: Annotated[int, Meta(ge=1)] = 2


class Toy(Object, frozen=True, kw_only=True):
    """A kind
    for tests."""

    resource: ClassVar[Resource] = Resource("g", "v1", "Toy", "toys", namespaced=True)

    must_have: Annotated[int | None, Meta(description="Present, maybe null.")]
    maybe: Time | None = None
    inner: Inner = Inner()
    by_name: dict[str, Annotated[str, schema.text(max_length=3)]] = {}
    status: Inner = Inner()


def test_every_construct_is_rendered() -> None:
    made = schema.of_kind(Toy)

    inner = {
        "description": "The inside.",
        "type": "object",
        "properties": {"low": {"type": "integer", "default": 2, "minimum": 1}},
        "x-kubernetes-validations": [
            {"rule": "self.low > 0", "message": "low is low", "fieldPath": ".low"}
        ],
    }
    assert made["description"] == "A kind for tests."
    assert made["required"] == ["mustHave"]
    properties = made["properties"]
    assert properties["metadata"] == {"type": "object"}
    assert properties["mustHave"] == {
        "description": "Present, maybe null.",
        "type": "integer",
        "nullable": True,
    }
    assert properties["maybe"] == {"type": "string", "format": "date-time"}
    assert properties["inner"] == {**inner, "default": {"low": 2}}
    assert properties["byName"] == {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 3},
    }


def test_status_has_no_defaults() -> None:
    status = schema.of_kind(Toy)["properties"]["status"]

    assert "default" not in status
    assert status["properties"] == {"low": {"type": "integer", "minimum": 1}}


@pytest.mark.parametrize("type", [int | str, bytes, float, Any, set[int]], ids=str)
def test_type_without_a_structural_schema_is_refused(type: object) -> None:
    with pytest.raises(TypeError, match="cannot be expressed by a structural schema"):
        schema.of_type(msgspec.inspect.type_info(type))


@pytest.mark.parametrize(
    "type",
    [
        Annotated[str, Meta(pattern="^a")],
        Annotated[str, Meta(min_length=1)],
        Annotated[str, Meta(max_length=3)],
        Annotated[list[str], Meta(max_length=3)],
    ],
    ids=str,
)
def test_pattern_that_decoding_would_check_is_refused(type: object) -> None:
    with pytest.raises(TypeError, match="would reject stored objects"):
        schema.of_type(msgspec.inspect.type_info(type))


def test_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        schema.ordered({"type": "string", "x-kubernetes-surprise": True})


def walk(part: dict[str, Any]) -> list[dict[str, Any]]:
    inside = [*part.get("properties", {}).values(), *([part["items"]] if "items" in part else [])]
    return [part, *(found for one in inside for found in walk(one))]


@kinds
def test_every_field_is_described(kind: type[Object]) -> None:
    parts = walk(schema.of_kind(kind))
    named = [(name, one) for part in parts for name, one in part.get("properties", {}).items()]

    assert [name for name, one in named if name != "metadata" and "description" not in one] == []


@kinds
def test_fields_that_a_rule_reads_are_bounded(kind: type[Object]) -> None:
    """A server estimates the worst-case cost of a rule, so strings and lists under a rule must be bounded."""
    ruled = [one for one in walk(schema.of_kind(kind)) if "x-kubernetes-validations" in one]
    texts = [one for one in ruled if one["type"] == "string"]

    assert ruled or kind is MacHost
    assert all("maxLength" in one or "enum" in one for one in texts)
    assert all(one["type"] in {"string", "object"} for one in ruled)


def valid(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw a value that fits the schema."""
    if part["type"] == "object":
        return valid_object(part)
    if part["type"] == "array":
        return st.lists(valid(part["items"]), max_size=3)
    if part["type"] == "integer":
        return st.integers(part.get("minimum", -(2**63)), part.get("maximum", 2**63 - 1))
    return valid_text(part) if part["type"] == "string" else st.booleans()


def valid_object(part: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in part:
        return st.dictionaries(st.text(max_size=5), valid(part["additionalProperties"]), max_size=3)
    known = {name: valid(one) for name, one in part["properties"].items() if name != "metadata"}
    required = set(part.get("required", []))
    must = {name: one for name, one in known.items() if name in required}
    may = {name: one for name, one in known.items() if name not in required}
    return st.fixed_dictionaries(must, optional={**may, "unknown": st.none()})


def valid_text(part: dict[str, Any]) -> st.SearchStrategy[str]:
    if "format" in part:
        return st.sampled_from(MOMENTS)
    if "enum" in part:
        return st.sampled_from(part["enum"])
    if "pattern" in part:
        return st.from_regex(part["pattern"].replace("$", r"\Z"))
    return st.text(max_size=5)


def unusual_values(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw something at or beyond the edge of the schema, or of another type."""
    junk: st.SearchStrategy[Any] = st.sampled_from([7, True, [], {}, [1], {"a": 1}, 1.5, "other"])
    if part["type"] == "integer":
        edges = [part.get("minimum", 0), part.get("maximum", 2**62)]
        return junk | st.sampled_from([edges[0] - 1, edges[0], edges[1], edges[1] + 1])
    if part["type"] == "string":
        longest = part.get("maxLength", 0)
        lengths = st.sampled_from(["a" * longest, "a" * (longest + 1)])
        return junk | lengths | st.sampled_from(ODD_TEXTS + NO_MOMENTS) | st.text(max_size=5)
    return junk


def places(part: dict[str, Any], value: Any) -> list[tuple[Any, Any, dict[str, Any]]]:
    """Return every container, key and schema in the value."""
    found: list[tuple[Any, Any, dict[str, Any]]] = []
    if isinstance(value, dict):
        known = part.get("properties", {})
        found = [(value, name, known[name]) for name in value if name in known]
    if isinstance(value, list) and "items" in part:
        found = [(value, number, part["items"]) for number in range(len(value))]
    return found + [place for holder, key, one in found for place in places(one, holder[key])]


@st.composite
def nearly_valid(draw: st.DrawFn, part: dict[str, Any]) -> dict[str, Any]:
    """Draw an object that fits the schema, with up to two of its values made odd or removed."""
    body: dict[str, Any] = draw(valid_object(part))
    for _ in range(draw(st.integers(0, 2))):
        if not (spots := places(part, body)):
            break
        holder, key, one = spots[draw(st.integers(0, len(spots) - 1))]
        if isinstance(holder, dict) and draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = draw(unusual_values(one))
    return body


def only_types(part: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without its patterns and lengths, which apply only to writes."""
    kept = {key: one for key, one in part.items() if key not in FOR_WRITERS}
    if "properties" in kept:
        kept["properties"] = {name: only_types(one) for name, one in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = only_types(kept["items"])
    return kept


@kinds
@given(data=st.data())
def test_values_valid_in_the_schema_can_be_decoded(kind: type[Object], data: st.DataObject) -> None:
    """Nulls are left out: a server drops them before it validates; so are rules, which only a server checks."""
    whole = schema.of_kind(kind)

    body = data.draw(nearly_valid(whole))

    try:
        msgspec.json.decode(msgspec.json.encode(body), type=kind)
        decoded = True
    except msgspec.ValidationError:
        decoded = False

    # The type fields are no part of the Structs.
    compared = {name: one for name, one in body.items() if name not in {"apiVersion", "kind"}}
    assert decoded == accepts(only_types(whole), compared)
    assert decoded or not accepts(whole, compared)
