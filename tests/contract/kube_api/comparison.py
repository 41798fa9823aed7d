"""Compares answers: everything must be equal except the parts that a documented difference names."""

from __future__ import annotations

import copy
from typing import Any

from tests.contract.kube_api import tables
from tests.contract.kube_api.tables import Case, Difference, Json


def allowed(case: Case) -> list[Difference]:
    """Return the documented differences of a case."""
    return [each for each in tables.differences() if case.id in each.cases]


def accepted(case: Case, answers: list[Json]) -> Any:
    """Return the answers without the parts that may differ; None when all of it may."""
    documented = allowed(case)
    if any(not each.at for each in documented):
        return None
    kept = copy.deepcopy(answers)
    for each in documented:
        for pointer in each.at:
            _cut(kept, pointer.strip("/").split("/"))
    return kept


def _cut(value: Any, parts: list[str]) -> None:
    """Remove what a pointer names; `*` stands for every item."""
    head, *rest = parts
    if head == "*":
        for each in value if isinstance(value, list) else []:
            _cut(each, rest)
    elif isinstance(value, list) and head.isdigit():
        if int(head) < len(value):
            _cut(value[int(head)], rest)
    elif isinstance(value, dict) and head in value:
        if rest:
            _cut(value[head], rest)
        else:
            del value[head]
