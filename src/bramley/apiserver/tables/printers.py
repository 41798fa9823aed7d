"""The printer of each built-in kind and of Scales; a kind without rows here shows its name and creation time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from bramley.apiserver.tables import builtin_rows, columns, custom, pods, workloads
from bramley.apiserver.tables.cells import Json, Row, age, created_at, name, number, row
from bramley.apiserver.tables.columns import Printer, definition

_ROW = row(name, number("spec.replicas"), number("status.replicas"), age)
_DESIRED = "replicas is the desired number of instances for the scaled object."
_ACTUAL = "replicas is the actual number of observed instances of the scaled object."
_CUSTOM = (
    ("Desired", "Number of desired replicas", ".spec.replicas"),
    ("Available", "Number of actual replicas", ".status.replicas"),
)


@cache
def scale_printer(*, of_custom: bool) -> Printer:
    """Return how the Scale of a custom or a built-in kind is shown."""
    name_text, age_text = (columns.description_of("configmaps", each) for each in ("Name", "Age"))
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


def _column(column: tuple[str, str, str]) -> Json:
    name, description, path = column
    return {"name": name, "type": "integer", "description": description, "jsonPath": path}


_DEFAULT_COLUMNS_OF = "limitranges"
_DEFAULT = row(name, created_at)

ROWS: Mapping[str, Row] = {"pods": pods.row, **workloads.ROWS, **builtin_rows.ROWS}


@cache
def printer(qualified: str) -> Printer:
    """Return how a built-in kind is shown."""
    definitions = columns.definitions(qualified)
    if definitions is None or qualified not in ROWS:
        default = columns.definitions(_DEFAULT_COLUMNS_OF) or []
        return Printer(default, _DEFAULT, is_default=True)
    conditions = pods.row_conditions if qualified == "pods" else None
    return Printer(definitions, ROWS[qualified], conditions)
