"""Label and field selectors against a plain model; the texts of refusals are held by the contract with the real server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery.selectors import (
    FieldTerm,
    Selection,
    parse_fields,
    parse_labels,
)
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.store.records import Key, Record

KEYS = st.sampled_from(["app", "tier", "example.com/x", "in", "notin"])
VALUES = st.sampled_from(["", "x", "y", "1", "20", "in"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def requirements(draw: st.DrawFn) -> tuple[str, str, tuple[str, ...]]:
    """Draw a condition: the key, the operator and the values."""
    operator = draw(st.sampled_from(["=", "==", "!=", "in", "notin", "exists", "!", ">", "<"]))
    values = VALUES if operator not in {">", "<"} else st.sampled_from(["0", "5", "20"])
    count = (1, 3) if operator in {"in", "notin"} else (1, 1)
    chosen = draw(st.lists(values, min_size=count[0], max_size=count[1]))
    return draw(KEYS), operator, tuple(chosen)


def text_of(requirement: tuple[str, str, tuple[str, ...]], space: str) -> str:
    key, operator, values = requirement
    match operator:
        case "exists":
            return key
        case "!":
            return f"!{space}{key}"
        case "in" | "notin":
            return f"{key} {operator} ({f'{space},{space}'.join(values)})"
    return f"{key}{space}{operator}{space}{values[0]}"


def holds(requirement: tuple[str, str, tuple[str, ...]], labels: dict[str, str]) -> bool:
    key, operator, values = requirement
    present, value = key in labels, labels.get(key)
    match operator:
        case "=" | "==" | "in":
            return present and value in values
        case "!=" | "notin":
            return not present or value not in values
        case "exists":
            return present
        case "!":
            return not present
    if value is None or not value.isdigit():
        return False
    return int(value) > int(values[0]) if operator == ">" else int(value) < int(values[0])


@given(st.lists(requirements(), max_size=3), LABELS, st.sampled_from(["", " "]))
def test_a_label_selector_is_the_conjunction_of_its_parts(
    parts: list[tuple[str, str, tuple[str, ...]]], labels: dict[str, str], space: str
) -> None:
    parsed = parse_labels(f"{space},{space}".join(text_of(part, space) for part in parts))

    found = Selection(labels=parsed).matches(a_record("a", labels=labels))

    assert found == all(holds(part, labels) for part in parts)


@given(st.text(alphabet="ab=!(),<> in", max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    refused = None
    try:
        parse_labels(text)
    except ApiError as error:
        refused = error

    assert refused is None or (refused.code, refused.reason) == (400, "BadRequest")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["f", "g"]), st.text(alphabet="ab,=\\", max_size=4), st.booleans()
        ),
        min_size=1,
        max_size=3,
    )
)
def test_escaped_field_values_round_trip(terms: list[tuple[str, str, bool]]) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")

    text = ",".join(
        f"{field}{'=' if equal else '!='}{escaped(value)}" for field, value, equal in terms
    )

    assert parse_fields(text, lambda field: field) == tuple(FieldTerm(*term) for term in terms)


def test_name_and_namespace_are_fields_of_every_kind() -> None:
    record = a_record("a")

    assert Selection(fields=(FieldTerm("metadata.name", "a", equal=True),)).matches(record)
    assert not Selection(fields=(FieldTerm("metadata.namespace", "t", equal=False),)).matches(
        record
    )


def test_single_value_of_a_field_is_found() -> None:
    selection = Selection(fields=parse_fields("x!=1,y=2", lambda field: field))

    assert selection.required_value("y") == "2"
    assert selection.required_value("x") is None


@pytest.mark.parametrize(
    "text", ["a=b=c", "a in (b", "=b", "a,,b", "a b", "!", "a=-b", "a>x", "a,"]
)
def test_invalid_selectors_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(text)
    assert refused.value.code == 400


def a_record(name: str, labels: dict[str, str] | None = None) -> Record:
    return Record(Key("things", "t", name), 1, b"{}", labels or {}, {})
