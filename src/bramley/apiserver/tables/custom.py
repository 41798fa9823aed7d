"""The columns of custom kinds: the name, and the definition's `additionalPrinterColumns`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from bramley.apiserver.tables import cells, columns, jsonpath
from bramley.apiserver.tables.cells import Json, name
from bramley.apiserver.tables.columns import Printer

Shown = Callable[[Json, datetime], Any]

_CREATION = ".metadata.creationTimestamp"
_DESCRIPTION = "Custom resource definition column (in JSONPath format): {}"


def printer(crd_columns: Iterable[Json] | None) -> Printer:
    """Return the printer of a custom kind; a definition without columns gets the age."""
    definitions = [
        columns.definition(
            "Name", "string", "name", description=columns.description_of("configmaps", "Name")
        )
    ]
    row_cells: list[Shown] = [name]
    for each in list(crd_columns or ()) or [age_column()]:
        try:
            find = jsonpath.compile(each.get("jsonPath", ""))
        except jsonpath.BadPath:
            # kube-apiserver shows the columns before the one that it cannot parse.
            break
        definitions.append(
            columns.definition(
                each["name"],
                each["type"],
                each.get("format", ""),
                priority=each.get("priority", 0),
                description=each.get("description") or _DESCRIPTION.format(each["jsonPath"]),
            )
        )
        row_cells.append(_cell(find, each["type"]))
    return Printer(definitions, lambda shown, now: [cell(shown, now) for cell in row_cells])


def age_column() -> Json:
    """Return the column that a custom kind has if its definition has none."""
    description = columns.description_of("configmaps", "Age")
    return {"name": "Age", "type": "date", "jsonPath": _CREATION, "description": description}


def _cell(find: Callable[[Any], list[Any]], type: str) -> Shown:
    form = _FORMS.get(type)

    def cell(shown: Json, now: datetime) -> Any:
        values = find(shown)
        return form(values[0], now) if values and form is not None else None

    return cell


def _as_text(value: Any, _now: datetime) -> str:
    if isinstance(value, dict | list):
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<no value>" if value is None else str(value)


def _as_integer(value: Any, _now: datetime) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number else None


def _as_number(value: Any, _now: datetime) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Go writes a whole number without a point, whatever its type.
    return (int(value) if value == int(value) else value) if is_number else None


def _as_boolean(value: Any, _now: datetime) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_date(value: Any, now: datetime) -> str | None:
    if not isinstance(value, str):
        return None
    if value and cells.parse_time(value) is None:
        return cells.INVALID
    return cells.time_since(value, now)


_FORMS: dict[str, Callable[[Any, datetime], Any]] = {
    "string": _as_text,
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "date": _as_date,
}
