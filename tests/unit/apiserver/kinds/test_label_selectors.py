"""Label selectors in objects: matching, their text form, and validation."""

from __future__ import annotations

import pytest

from bramley.apiserver.kinds import label_selectors
from tests.unit.apiserver.world import Json


def requirement(operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": "k", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "means"),
    [
        (None, {}, False),
        ({}, {}, True),
        ({"matchLabels": {"k": "a"}}, {"k": "a", "l": "b"}, True),
        ({"matchLabels": {"k": "a"}}, {"k": "b"}, False),
        (requirement("In", "a", "b"), {"k": "b"}, True),
        (requirement("In", "a"), {}, False),
        (requirement("NotIn", "a"), {}, True),
        (requirement("NotIn", "a"), {"k": "a"}, False),
        (requirement("Exists"), {"k": ""}, True),
        (requirement("Exists"), {}, False),
        (requirement("DoesNotExist"), {}, True),
        (requirement("DoesNotExist"), {"k": ""}, False),
        (requirement("Perhaps"), {"k": ""}, False),
    ],
)
def test_labels_match_the_selector(
    selector: Json | None, labels: dict[str, str], means: bool
) -> None:
    assert label_selectors.matches(selector, labels) is means


def test_selector_is_formatted_in_the_order_of_its_keys() -> None:
    expressions = [
        {"key": "b", "operator": "In", "values": ["y", "x"]},
        {"key": "a", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
        {"key": "e", "operator": "NotIn", "values": ["z"]},
    ]
    selector = {"matchLabels": {"c": "v"}, "matchExpressions": expressions}

    assert label_selectors.text(selector) == "a,b in (x,y),c=v,!d,e notin (z)"
    assert label_selectors.text({"x": "y", "a": "b"}) == "a=b,x=y"
