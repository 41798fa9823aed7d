"""Tables and JSON as tart prints them: keys in no order, ` : ` between key and value, slashes escaped."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bramley.sim.tart.world import World


def as_json(world: World, value: Any) -> str:
    """Return the text that Swift's encoder makes."""
    return _encode(world, value, "")


def _encode(world: World, value: Any, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, Mapping):
        lines = [
            f'{deeper}"{key}" : {_encode(world, each, deeper)}'
            for key, each in _shuffled(world, value)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        lines = [deeper + _encode(world, each, deeper) for each in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False).replace("/", "\\/")


def _shuffled(world: World, value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the items in an order that changes from object to object, so that nobody relies on one."""
    marks = world.around.entropy(len(value))
    order = sorted(range(len(value)), key=lambda index: marks[index])
    items = list(value.items())
    return [items[index] for index in order]


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return aligned columns; nothing but an empty line without rows."""
    if not rows:
        return ""
    texts = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    lines = (
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in texts
    )
    return "\n".join(lines)
