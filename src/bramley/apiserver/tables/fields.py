"""The small functions that rows are made of: each takes an object and the time, and returns one cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from bramley.apiserver.tables import durations

Json = dict[str, Any]
Cell = Callable[[Json, datetime], Any]
Row = Callable[[Json, datetime], list[Any]]

NONE = "<none>"
UNSET = "<unset>"


def find(value: Any, path: str) -> Any:
    """Return what is at a dotted path, or None."""
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def row(*cells: Cell) -> Row:
    """Return the row that these cells make."""

    def cells_of(shown: Json, now: datetime) -> list[Any]:
        return [cell(shown, now) for cell in cells]

    return cells_of


def at(path: str, absent: Any = "") -> Cell:
    """Show what is at a path, or something else where nothing is."""

    def cell(shown: Json, _now: datetime) -> Any:
        found = find(shown, path)
        return absent if found is None or found == "" else found

    return cell


def number(path: str) -> Cell:
    """Show the number at a path; where none is, zero."""
    return at(path, 0)


def said(path: str, absent: str) -> Cell:
    """Show what is at a path as text, or something else where nothing is."""

    def cell(shown: Json, _now: datetime) -> str:
        found = find(shown, path)
        return absent if found is None else str(found)

    return cell


def count(*paths: str) -> Cell:
    """Show how many things are at these paths together."""

    def cell(shown: Json, _now: datetime) -> int:
        return sum(len(find(shown, path) or ()) for path in paths)

    return cell


def joined(path: str, absent: str = "") -> Cell:
    """Show the texts at a path with commas between them."""

    def cell(shown: Json, _now: datetime) -> str:
        return ",".join(find(shown, path) or ()) or absent

    return cell


def made(function: Callable[[Json], Any]) -> Cell:
    """Show what a function makes of the object, whatever the time."""

    def cell(shown: Json, _now: datetime) -> Any:
        return function(shown)

    return cell


def name(shown: Json, _now: datetime) -> str:
    """Show the object's name."""
    return str(shown["metadata"].get("name", ""))


def age(shown: Json, now: datetime) -> str:
    """Show how long ago the object was created."""
    return durations.since(shown["metadata"].get("creationTimestamp"), now)


def created_at(shown: Json, _now: datetime) -> str:
    """Show when the object was created."""
    return shown["metadata"].get("creationTimestamp") or "0001-01-01T00:00:00Z"


def is_going(shown: Json) -> bool:
    """Tell whether the object's deletion has begun."""
    return bool(shown["metadata"].get("deletionTimestamp"))


def labels(path: str) -> Cell:
    """Show the labels at a path."""
    return made(lambda shown: label_text(find(shown, path)))


def selector(path: str) -> Cell:
    """Show the label selector at a path."""
    return made(lambda shown: selector_text(find(shown, path)) or NONE)


def containers(path: str, field: str) -> Cell:
    """Show the names or the images of a template's containers."""

    def cell(shown: Json, _now: datetime) -> str:
        return ",".join(each.get(field, "") for each in find(shown, path) or ())

    return cell


def label_text(given: Json | None) -> str:
    """Return labels as one text, in the order of their names."""
    return ",".join(f"{key}={value}" for key, value in sorted((given or {}).items())) or NONE


def selector_text(given: Json | None) -> str:
    """Return a label selector as it is written in a request; nothing for one that selects all or nothing."""
    if not given:
        return ""
    equal = [(key, f"{key}={value}") for key, value in (given.get("matchLabels") or {}).items()]
    others = [(each["key"], _requirement(each)) for each in given.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted([*equal, *others], key=lambda pair: pair[0]))


def _requirement(given: Json) -> str:
    key, operator = given["key"], given.get("operator", "")
    if operator in {"Exists", "DoesNotExist"}:
        return key if operator == "Exists" else f"!{key}"
    values = ",".join(sorted(given.get("values") or ()))
    return f"{key} {operator.lower()} ({values})"


def shortened(texts: Iterable[str], limit: int) -> str:
    """Return the first few texts, and how many more there are."""
    every = list(texts)
    text = ",".join(every[:limit])
    return f"{text} + {len(every) - limit} more..." if len(every) > limit else text


def condition(shown: Json, type: str) -> Json | None:
    """Return the condition of a type in an object's status."""
    found = find(shown, "status.conditions") or ()
    return next((each for each in found if each.get("type") == type), None)


def holds(shown: Json, type: str) -> bool:
    """Tell whether the condition of a type is there and true."""
    return (condition(shown, type) or {}).get("status") == "True"
