"""Label selectors, and which labels they match.

A missing selector matches nothing, an empty one everything; kinds that treat a missing one differently handle that themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bramley.api.meta import Fields


class LabelRequirement(Fields, frozen=True, kw_only=True):
    """One requirement for a label."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Fields, frozen=True, kw_only=True):
    """Requirements for labels that must all be met."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelRequirement] = []


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether the labels meet every requirement of the selector."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        passes(labels.get(each.key), each.operator, each.values)
        for each in selector.match_expressions
    )


def passes(value: str | None, operator: str, values: Collection[str]) -> bool:
    """Return whether the value of a label, or its absence, meets a requirement; an unknown operator is never met."""
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
