"""The columns of the built-in kinds, recorded from kube-apiserver by `tools/columns.py`; loaded for the first table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from bramley.apiserver.tables.cells import Json, Row

_FILE = "columns.json"


@dataclass(frozen=True, slots=True)
class Printer:
    """How a kind is printed: the definitions of its columns, and the function that returns a row's cells."""

    definitions: list[Json]
    row: Row
    # The conditions of a whole row; only Pods have some.
    conditions: Callable[[Json], list[Json]] | None = None
    # An empty list of a kind without a printer has `rows: null`, of other kinds `rows: []`.
    is_default: bool = False


class _Columns(msgspec.Struct):
    """The file: texts, and for each kind the name, type, format, priority and index of the text of each column."""

    texts: list[str]
    columns: dict[str, list[tuple[str, str, str, int, int]]]


@cache
def _packaged() -> _Columns:
    data = resources.files(__package__).joinpath(_FILE).read_bytes()
    return msgspec.json.decode(data, type=_Columns)


def definition(
    name: str, type: str, format: str = "", *, description: str = "", priority: int = 0
) -> Json:
    """Return the definition of one column."""
    return {
        "name": name,
        "type": type,
        "format": format,
        "description": description,
        "priority": priority,
    }


def definitions(qualified: str) -> list[Json] | None:
    """Return the columns of a built-in kind, or None if the file does not contain it."""
    packaged = _packaged()
    columns = packaged.columns.get(qualified)
    if columns is None:
        return None
    return [
        definition(name, type, format, description=packaged.texts[text], priority=priority)
        for name, type, format, priority, text in columns
    ]


def kinds() -> frozenset[str]:
    """Return the kinds that the file contains."""
    return frozenset(_packaged().columns)


def description_of(qualified: str, name: str) -> str:
    """Return the description of a kind's column."""
    columns: dict[str, Any] = {each["name"]: each for each in definitions(qualified) or ()}
    return str(columns[name]["description"])
