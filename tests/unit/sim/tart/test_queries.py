"""JSON and tables as tart prints them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.sim.tart import queries, settings
from bramley.sim.tart.settings import Context

numbers = itertools.count()
CONTEXT = Context(
    "/home",
    {},
    lambda: 0.0,
    lambda n: bytes(7 * next(numbers) % 256 for _ in range(n)),
    settings.read({}, "/home"),
)

leaves = st.none() | st.booleans() | st.integers() | st.text()
rows = st.lists(st.dictionaries(st.text(alphabet="abcXYZ", min_size=1), leaves, min_size=1))


@given(rows)
def test_any_value_round_trips(value: list[dict[str, Any]]) -> None:
    assert json.loads(queries.as_json(CONTEXT, value)) == value


def test_spacing_and_slashes_are_swift_s() -> None:
    assert queries.as_json(CONTEXT, [{"a": "b/c"}]) == '[\n  {\n    "a" : "b\\/c"\n  }\n]'


@pytest.mark.parametrize(
    ("rows", "text"), [([], ""), ([["x", 1], ["long", 2]], "A    B\nx    1\nlong 2")]
)
def test_table_is_aligned(rows: list[list[Any]], text: str) -> None:
    assert queries.table(["A", "B"], rows) == text
