"""JSON values beside their schema: copies, strict equality, paths, and walking a value together with its old version.

`compile_tree` keeps only the branches with a check, so a schema without any costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec

from bramley.base.errors import Cause

Schema = Mapping[str, Any]
Visit = Callable[[Any, Any, str, list[Cause]], None]  # value, former value, path, causes found
CompileNode = Callable[[Schema], Visit | None]


def compile_tree(schema: Any, compile_node: CompileNode) -> Visit | None:
    """Return a function that runs the checks that `compile_node` compiles, at each level of the schema; None if there are none."""
    if not isinstance(schema, Mapping):
        return None
    visit_node = compile_node(schema)
    inner = _object_visit(schema, compile_node), _list_visit(schema, compile_node)
    visits = [visit for visit in (visit_node, *inner) if visit is not None]
    if not visits:
        return None

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        for run in visits:
            run(value, old, path, out)

    return visits[0] if len(visits) == 1 else visit


def _object_visit(schema: Schema, compile_node: CompileNode) -> Visit | None:
    compiled = {
        name: compile_tree(inner, compile_node)
        for name, inner in (schema.get("properties") or {}).items()
    }
    visits = {name: inner for name, inner in compiled.items() if inner is not None}
    extra = compile_tree(schema.get("additionalProperties"), compile_node)
    if not visits and extra is None:
        return None

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if type(value) is not dict:
            return
        former = old if type(old) is dict else {}
        for name, inner in visits.items():
            if name in value:
                inner(value[name], former.get(name, ABSENT), child(path, name), out)
        if extra is not None:
            for name, item in value.items():
                extra(item, former.get(name, ABSENT), f"{path}[{name}]", out)

    return visit


def _list_visit(schema: Schema, compile_node: CompileNode) -> Visit | None:
    visit_item = compile_tree(schema.get("items"), compile_node)
    if visit_item is None:
        return None
    counterparts = correlated(schema)

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if type(value) is list:
            for index, (item, former) in enumerate(counterparts(value, old)):
                visit_item(item, former, f"{path}[{index}]", out)

    return visit


def correlated(schema: Schema) -> Callable[[list[Any], Any], list[tuple[Any, Any]]]:
    """Return a function that pairs each item of a list with its old version.

    Items of lists of type map are paired by key. Items of other lists have an old version only if the whole list is unchanged.
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


class Absent(Enum):
    """The type of `ABSENT`; null is a value, so a missing value needs another marker."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

INT64: Final = range(-(2**63), 2**63)
NO_FIELD: Final = "<nil>"  # what Kubernetes writes where a breach belongs to no single field
META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def copied(value: Any) -> Any:
    """Return a deep copy."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    return value


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal and of the same type: 1, 1.0 and true all differ."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if type(left) is list:
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def printable(value: Any) -> Any:
    """Return a value that messages print as Go prints numbers: 1, 2.5, 1e+06."""
    if type(value) is float or (type(value) is int and value not in INT64):
        return msgspec.Raw(_go_float(float(value)).encode())
    return value


def _go_float(value: float) -> str:
    sign, digits, power = Decimal(repr(value)).normalize().as_tuple()
    exponent = len(digits) - 1 + int(power)
    if -4 <= exponent < 6 or not value:
        return f"{value:.17g}" if value.is_integer() else repr(value)
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    fraction = f".{rest}" if rest else ""
    return f"{'-' * sign}{first}{fraction}e{exponent:+03d}"


def child(path: str, name: str) -> str:
    """Return the path of a named field."""
    return f"{path}.{name}" if path else name


def key_of(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return the key of an item of a list of type map, or None if it is not an object."""
    if type(item) is not dict:
        return None
    return tuple(_hashable(item.get(key, ABSENT)) for key in keys)


def _hashable(value: Any) -> Any:
    # With the type, because 1 and true are the same key in Python.
    return (type(value), str(value) if type(value) in {dict, list} else value)
