"""The row of a Scale; those of custom kinds have columns like theirs, with other texts."""

from __future__ import annotations

from functools import cache

from bramley.apiserver.tables import columns, custom
from bramley.apiserver.tables.columns import Printer, definition
from bramley.apiserver.tables.fields import Json, age, name, number, row

_ROW = row(name, number("spec.replicas"), number("status.replicas"), age)
_DESIRED = "replicas is the desired number of instances for the scaled object."
_ACTUAL = "replicas is the actual number of observed instances of the scaled object."
_CUSTOM = (
    ("Desired", "Number of desired replicas", ".spec.replicas"),
    ("Available", "Number of actual replicas", ".status.replicas"),
)


@cache
def printer(*, of_custom: bool) -> Printer:
    """Return how the Scale of a custom or a built-in kind is shown."""
    name_text, age_text = (columns.text_of("configmaps", each) for each in ("Name", "Age"))
    if of_custom:
        return custom.printer([*map(_column, _CUSTOM), custom.age_column()])
    return Printer(
        [
            definition("Name", "string", description=name_text),
            definition("Desired", "integer", description=_DESIRED),
            definition("Available", "integer", description=_ACTUAL),
            definition("Age", "string", description=age_text),
        ],
        _ROW,
    )


def _column(told: tuple[str, str, str]) -> Json:
    name, description, path = told
    return {"name": name, "type": "integer", "description": description, "jsonPath": path}
