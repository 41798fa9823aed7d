"""Walking a value beside its schema and its former version, for checks that only some places need.

`compile_tree` keeps only the branches where a check lives, so a schema without any costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.apiserver.schema.values import ABSENT, child, key_of
from bramley.base.errors import Cause

Schema = Mapping[str, Any]
Visit = Callable[[Any, Any, str, list[Cause]], None]  # value, former value, path, causes found
Here = Callable[[Schema], Visit | None]


def compile_tree(schema: Any, here: Here) -> Visit | None:
    """Return a function that runs the checks `here` makes, wherever the schema asks for one."""
    if not isinstance(schema, Mapping):
        return None
    own = here(schema)
    inner = _object(schema, here), _list(schema, here)
    visits = [visit for visit in (own, *inner) if visit is not None]
    if not visits:
        return None

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        for one in visits:
            one(value, old, path, out)

    return visits[0] if len(visits) == 1 else visit


def _object(schema: Schema, here: Here) -> Visit | None:
    found = {
        name: compile_tree(one, here) for name, one in (schema.get("properties") or {}).items()
    }
    known = {name: one for name, one in found.items() if one is not None}
    extra = compile_tree(schema.get("additionalProperties"), here)
    if not known and extra is None:
        return None

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if type(value) is not dict:
            return
        former = old if type(old) is dict else {}
        for name, one in known.items():
            if name in value:
                one(value[name], former.get(name, ABSENT), child(path, name), out)
        if extra is not None:
            for name, item in value.items():
                extra(item, former.get(name, ABSENT), f"{path}[{name}]", out)

    return visit


def _list(schema: Schema, here: Here) -> Visit | None:
    one = compile_tree(schema.get("items"), here)
    if one is None:
        return None
    counterparts = correlated(schema)

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if type(value) is list:
            for index, (item, former) in enumerate(counterparts(value, old)):
                one(item, former, f"{path}[{index}]", out)

    return visit


def correlated(schema: Schema) -> Callable[[list[Any], Any], list[tuple[Any, Any]]]:
    """Return a function that pairs each item of a list with its former self.

    Only lists of type map have items with an identity. Items of other lists have a former self only while the
    whole list is unchanged.
    """
    if schema.get("x-kubernetes-list-type") != "map":
        return _paired_while_unchanged
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())

    def paired(value: list[Any], old: Any) -> list[tuple[Any, Any]]:
        former = {key_of(item, keys): item for item in old} if type(old) is list else {}
        return [(item, former.get(key_of(item, keys), ABSENT)) for item in value]

    return paired


def _paired_while_unchanged(value: list[Any], old: Any) -> list[tuple[Any, Any]]:
    unchanged = value == old
    return [(item, item if unchanged else ABSENT) for item in value]
