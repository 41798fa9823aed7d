"""Which row belongs to which built-in kind; a kind without one shows its name and when it was created."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from bramley.apiserver.tables import (
    access,
    columns,
    events,
    networks,
    nodes,
    pods,
    small,
    volumes,
    workloads,
)
from bramley.apiserver.tables.columns import Printer
from bramley.apiserver.tables.fields import Row, created_at, name, row

_DEFAULT_COLUMNS_OF = "limitranges"
_DEFAULT = row(name, created_at)

ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "pods": pods.row,
        "nodes": nodes.ROW,
        "events": events.row,
        "events.events.k8s.io": events.row,
        **workloads.ROWS,
        **networks.ROWS,
        **volumes.ROWS,
        **access.ROWS,
        **small.ROWS,
    }
)


@cache
def printer(qualified: str) -> Printer:
    """Return how a built-in kind is shown."""
    found = columns.definitions(qualified)
    if found is None or qualified not in ROWS:
        default = columns.definitions(_DEFAULT_COLUMNS_OF) or []
        return Printer(default, _DEFAULT, is_default=True)
    conditions = pods.row_conditions if qualified == "pods" else None
    return Printer(found, ROWS[qualified], conditions)
