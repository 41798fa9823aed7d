from __future__ import annotations

import pytest

from bramley.base import errors
from bramley.kube import selectors


def test_mappings_select_equality_and_texts_pass_through() -> None:
    assert selectors.query({"app": "web", "tuist.dev/fleet": "a"}, {"spec.nodeName": "mac-1"}) == {
        "labelSelector": "app=web,tuist.dev/fleet=a",
        "fieldSelector": "spec.nodeName=mac-1",
    }
    assert selectors.query("app in (a, b)", "status.phase!=Failed") == {
        "labelSelector": "app in (a, b)",
        "fieldSelector": "status.phase!=Failed",
    }
    assert selectors.query(None, {}) == {}


@pytest.mark.parametrize("value", ["a,b=c", "a b", "-a", "ä", "x" * 64, "a\n"])
def test_a_label_value_cannot_widen_the_selection(value: str) -> None:
    with pytest.raises(errors.BadRequest):
        selectors.of_labels({"app": value})
    with pytest.raises(errors.BadRequest):
        selectors.of_labels({f"app,{value}": "x"})


def test_field_values_are_escaped_and_field_names_checked() -> None:
    assert selectors.of_fields({"metadata.name": r"a,b=c\d"}) == r"metadata.name=a\,b\=c\\d"
    with pytest.raises(errors.BadRequest):
        selectors.of_fields({"metadata.name=x,status.phase": "y"})
