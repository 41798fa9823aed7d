"""Lists with an identity: sets hold no item twice, and maps no key twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema.tree import Visit, compile_tree
from bramley.apiserver.schema.values import ABSENT
from bramley.base.errors import Cause

Schema = Mapping[str, Any]


def compile_uniqueness(schema: Schema) -> Callable[[Any, Any], list[Cause]]:
    """Return a function that finds doubles, unless the former version had some already."""
    visit = compile_tree(schema, _uniqueness_here)

    def find(value: Any, old: Any) -> list[Cause]:
        if visit is None:
            return []
        found: list[Cause] = []
        visit(value, ABSENT, "", found)
        if found and old is not ABSENT:
            former: list[Cause] = []
            visit(old, ABSENT, "", former)
            return [] if former else found
        return found

    return find


def _uniqueness_here(schema: Schema) -> Visit | None:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return _set
    if kind == "map":
        return _map(tuple(schema.get("x-kubernetes-list-map-keys") or ()))
    return None


def _set(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
    if type(value) is list:
        out += (causes.duplicate(f"{path}[{index}]", value[index]) for index in _doubles(value))


def _map(keys: tuple[str, ...]) -> Visit:
    def visit(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
        if type(value) is not list:
            return
        for index, item in enumerate(value):
            if item is not None and type(item) is not dict:
                detail = "must be an object for an array of list-type map"
                out.append(causes.invalid(f"{path}[{index}]", item, detail))
                return
        parts = [{key: item[key] for key in keys if key in item} for item in map(_object, value)]
        out += (causes.duplicate(f"{path}[{index}]", parts[index]) for index in _doubles(parts))

    return visit


def _object(item: dict[str, Any] | None) -> dict[str, Any]:
    return item or {}


def _doubles(items: Iterable[Any]) -> Iterator[int]:
    # Only the second appearance is reported; a third one adds nothing to what must be repaired.
    seen: dict[bytes, int] = {}
    for index, item in enumerate(items):
        encoded = msgspec.json.encode(item, order="sorted")
        seen[encoded] = seen.get(encoded, 0) + 1
        if seen[encoded] == 2:
            yield index
