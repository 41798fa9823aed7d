"""Label selectors of objects: validation, matching, and the form of a query parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bramley.api.label_selectors import passes
from bramley.apiserver.apimachinery import causes, metadata, names
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause


def check(selector: Json, field: str) -> list[Cause]:
    """Return what is wrong with a selector."""
    errors = metadata.check_labels(selector.get("matchLabels", {}), f"{field}.matchLabels")
    for index, each in enumerate(selector.get("matchExpressions", [])):
        errors += _validate_expression(each, f"{field}.matchExpressions[{index}]")
    return errors


def check_operator(operator: str, values: list[str] | None, field: str) -> Iterator[Cause]:
    """Yield a cause when an operator is unknown or its values do not fit it."""
    if operator in {"In", "NotIn"}:
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            yield causes.required(f"{field}.values", detail)
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield causes.forbidden(f"{field}.values", detail)
    else:
        yield causes.invalid(f"{field}.operator", operator, "not a valid selector operator")


def is_empty(selector: Json) -> bool:
    """Return whether a selector is empty, and so matches everything."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches these labels; None and invalid selectors match nothing."""
    if selector is None or check(selector, ""):
        return False
    required = selector.get("matchLabels", {})
    if any(labels.get(key) != value for key, value in required.items()):
        return False
    return all(
        passes(labels.get(each["key"]), each["operator"], each.get("values", []))
        for each in selector.get("matchExpressions", [])
    )


def text(selector: Json) -> str:
    """Return a selector, or plain labels, in the form of a query parameter, sorted by key."""
    if all(isinstance(value, str) for value in selector.values()):
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [(key, f"{key}={value}") for key, value in selector.get("matchLabels", {}).items()]
    parts += [
        (each["key"], _requirement_text(each)) for each in selector.get("matchExpressions", [])
    ]
    return ",".join(text for _, text in sorted(parts))


def _requirement_text(expression: Json) -> str:
    key, values = expression["key"], ",".join(sorted(expression.get("values", [])))
    forms: dict[str, str] = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }
    return forms[expression["operator"]]


def _validate_expression(expression: Json, field: str) -> Iterator[Cause]:
    yield from check_operator(expression.get("operator", ""), expression.get("values"), field)
    key = expression.get("key", "")
    yield from causes.invalid_each(f"{field}.key", key, names.qualified_name(key))
    for index, value in enumerate(expression.get("values", [])):
        yield from causes.invalid_each(f"{field}.values[{index}]", value, names.label_value(value))
