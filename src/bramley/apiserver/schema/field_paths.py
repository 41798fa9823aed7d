"""Simple JSON paths such as `.spec.replicas` or `.labels['a.b']`, checked against a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bramley.apiserver.schema.values import Schema

_STEP = re.compile(r"\.([^.\[\]]+)|\['((?:\\.|[^'\\])*)'\]")


class BadPath(ValueError):
    """The path is malformed, or the schema does not have it."""


def find(path: str, schema: Schema, *, brackets: bool = True) -> tuple[str, Schema]:
    """Return the normalized path and the schema of its field; raise BadPath."""
    node: Any = schema
    written = ""
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or (step.group(2) is not None and not brackets):
            raise BadPath(_complaint(path, at, brackets=brackets))
        name = step.group(1) or re.sub(r"\\(.)", r"\1", step.group(2))
        node, written = _descend(node, name, written)
        at = step.end()
    return written, node


def normalized(path: str, schema: Schema) -> str:
    """Return the normalized path, or the path unchanged if the schema does not have it."""
    try:
        return find(path, schema)[0]
    except BadPath:
        return path.removeprefix(".")


def _descend(node: Any, name: str, written: str) -> tuple[Any, str]:
    properties = node.get("properties")
    if properties:
        if name not in properties:
            raise BadPath("does not refer to a valid field")
        return properties[name], f"{written}.{name}" if written else name
    extra = node.get("additionalProperties")
    if not isinstance(extra, Mapping):
        raise BadPath("does not refer to a valid field")
    return extra, f"{written}[{name}]"


def _complaint(path: str, at: int, *, brackets: bool) -> str:
    if path[at] == "[":
        return "expected single quoted string" if brackets else "array notation is not allowed"
    return (
        "unexpected end of JSON path"
        if path[at:] == "."
        else f"expected [ or . but got: {path[at:]}"
    )
