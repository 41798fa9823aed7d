"""The cells of rows: each is a function from an object and the current time to a value, here with durations as `5m3s`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

UNKNOWN = "<unknown>"
INVALID = "<invalid>"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
# Below the first number of seconds, a duration is shown in the larger unit and, if there is one, in the smaller unit.
_STEPS = (
    (10 * _MINUTE, _MINUTE, _SECOND := 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
_LETTERS = {_SECOND: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl shows it: `63s`, `5m3s`, `2d4h`."""
    seconds_total = int(seconds)
    # The clocks of two machines differ a little: a start up to a second ahead counts as now.
    if seconds_total < -1:
        return INVALID
    if seconds_total < 2 * _MINUTE:
        return f"{max(seconds_total, 0)}s"
    for limit, unit, smaller in _STEPS:
        if seconds_total < limit:
            return _in_units(seconds_total, unit, smaller)
    return f"{seconds_total // _YEAR}y"


def _in_units(seconds_total: int, unit: int, smaller: int) -> str:
    rest = seconds_total % unit // smaller if smaller else 0
    tail = f"{rest}{_LETTERS[smaller]}" if rest else ""
    return f"{seconds_total // unit}{_LETTERS[unit]}{tail}"


def parse_time(text: Any) -> datetime | None:
    """Return a timestamp of an object, or None if it is absent or not valid."""
    if not isinstance(text, str) or not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def time_since(text: Any, now: datetime) -> str:
    """Return how long ago a timestamp was."""
    time = parse_time(text)
    return UNKNOWN if time is None else human_duration((now - time).total_seconds())


Json = dict[str, Any]
Cell = Callable[[Json, datetime], Any]
Row = Callable[[Json, datetime], list[Any]]

NONE = "<none>"
UNSET = "<unset>"


def find(value: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def row(*cells: Cell | str) -> Row:
    """Return a row of these cells; a text is the path of a value, which is shown as it is."""
    every = [at(each) if isinstance(each, str) else each for each in cells]
    return lambda body, now: [cell(body, now) for cell in every]


def at(path: str, absent: Any = "") -> Cell:
    """Show the value at a path, or `absent` if there is none or it is empty."""

    def cell(body: Json, _now: datetime) -> Any:
        value = find(body, path)
        return absent if value is None or value == "" else value

    return cell


def number(path: str) -> Cell:
    """Show the number at a path, or zero."""
    return at(path, 0)


def text_at(path: str, absent: str) -> Cell:
    """Show the value at a path as text, or `absent` if there is none."""

    def cell(body: Json, _now: datetime) -> str:
        value = find(body, path)
        return absent if value is None else str(value)

    return cell


def count(*paths: str) -> Cell:
    """Show the total length of the lists or objects at these paths."""
    return lambda body, _now: sum(len(find(body, path) or ()) for path in paths)


def joined(path: str, absent: str = "") -> Cell:
    """Show the texts at a path with commas between them."""
    return lambda body, _now: ",".join(find(body, path) or ()) or absent


def computed(function: Callable[[Json], Any]) -> Cell:
    """Show the result of a function of the object alone."""
    return lambda body, _now: function(body)


def name(body: Json, _now: datetime) -> str:
    """Show the object's name."""
    return str(body["metadata"].get("name", ""))


def age(body: Json, now: datetime) -> str:
    """Show how long ago the object was created."""
    return time_since(body["metadata"].get("creationTimestamp"), now)


def created_at(body: Json, _now: datetime) -> str:
    """Show when the object was created."""
    return body["metadata"].get("creationTimestamp") or "0001-01-01T00:00:00Z"


def is_terminating(body: Json) -> bool:
    """Return whether the object's deletion has begun."""
    return bool(body["metadata"].get("deletionTimestamp"))


def labels(path: str) -> Cell:
    """Show the labels at a path, in the order of their names."""

    def cell(body: Json, _now: datetime) -> str:
        pairs = sorted((find(body, path) or {}).items())
        return ",".join(f"{key}={value}" for key, value in pairs) or NONE

    return cell


def selector(path: str) -> Cell:
    """Show the label selector at a path."""
    return computed(lambda body: selector_text(find(body, path)) or NONE)


def containers(path: str, field: str) -> Cell:
    """Show the names or the images of a template's containers."""
    return computed(lambda body: ",".join(each.get(field, "") for each in find(body, path) or ()))


def selector_text(selector: Json | None) -> str:
    """Return a label selector in the form of a query parameter; an empty text for an empty or absent one."""
    if not selector:
        return ""
    equal = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    others = [(each["key"], _requirement(each)) for each in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted([*equal, *others], key=lambda pair: pair[0]))


def _requirement(requirement: Json) -> str:
    key, operator = requirement["key"], requirement.get("operator", "")
    if operator in {"Exists", "DoesNotExist"}:
        return key if operator == "Exists" else f"!{key}"
    values = ",".join(sorted(requirement.get("values") or ()))
    return f"{key} {operator.lower()} ({values})"


def shortened(texts: Iterable[str], limit: int) -> str:
    """Return the first few texts, and how many more there are."""
    every = list(texts)
    text = ",".join(every[:limit])
    return f"{text} + {len(every) - limit} more..." if len(every) > limit else text


def condition(body: Json, type: str) -> Json | None:
    """Return the condition of a type in an object's status."""
    conditions = find(body, "status.conditions") or ()
    return next((each for each in conditions if each.get("type") == type), None)


def is_condition_true(body: Json, type: str) -> bool:
    """Return whether the object has the condition of a type with status True."""
    return (condition(body, type) or {}).get("status") == "True"
