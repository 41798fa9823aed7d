"""Label selectors as objects carry them, and what they mean: which labels they match.

A selector that is not there matches nothing, an empty one everything; whoever treats a missing one otherwise says so himself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bramley.api.meta import Fields


class LabelRequirement(Fields, frozen=True, kw_only=True):
    """One test on a label."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Fields, frozen=True, kw_only=True):
    """Tests on labels that must all hold."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelRequirement] = []


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether the labels pass every test of the selector."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        passes(labels.get(each.key), each.operator, each.values)
        for each in selector.match_expressions
    )


def passes(value: str | None, operator: str, values: Collection[str]) -> bool:
    """Tell whether the value of a label, or its absence, passes a test; an operator that labels do not have passes none."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
