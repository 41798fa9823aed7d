"""Pruning: unknown fields are dropped, and reported for strict validation.

`x-kubernetes-preserve-unknown-fields` keeps unknown fields of the same level; known fields below it are pruned again. The
apiVersion, kind and metadata of a resource, also of an embedded one, are not pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.apiserver.schema.values import META_FIELDS, Schema, child

Pruner = Callable[[Any, str, list[str]], None]


def compile_pruner(
    schema: Schema | None, *, root: bool = False, keep_unknown: bool = False
) -> Pruner:
    """Return a function that prunes a value in place and appends the pruned paths."""
    if schema is None:
        return _prune_everything
    keep_unknown = keep_unknown or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    fields, inner = _Fields(schema, root=root), schema.get("items")
    items = compile_pruner(inner, keep_unknown=keep_unknown and inner is not None)
    keep_items = keep_unknown and inner is None

    def prune(value: Any, path: str, pruned: list[str]) -> None:
        if type(value) is dict:
            unknown = fields.descend(value, path, pruned)
            for name in () if keep_unknown else unknown:
                if path or name not in META_FIELDS:
                    pruned.append(child(path, name))
                del value[name]
        elif type(value) is list and not keep_items:
            _each(items, value, path, pruned)

    return prune


class _Fields:
    """The compiled fields of one object schema."""

    def __init__(self, schema: Schema, *, root: bool) -> None:
        properties = schema.get("properties") or {}
        self._known = {name: compile_pruner(inner) for name, inner in properties.items()}
        self._skipped = META_FIELDS if root or schema.get("x-kubernetes-embedded-resource") else ()
        extra = schema.get("additionalProperties")
        self._extra = None
        if extra is not None:
            self._extra = compile_pruner(extra if isinstance(extra, Mapping) else None)

    def descend(self, value: dict[str, Any], path: str, pruned: list[str]) -> list[str]:
        """Prune the values of known fields, and return the unknown fields."""
        unknown: list[str] = []
        for name, item in value.items():
            if name in self._skipped:
                continue
            prune = self._known.get(name, self._extra)
            if prune is None:
                unknown.append(name)
            elif type(item) is dict or type(item) is list:
                prune(item, child(path, name), pruned)
        return unknown


def _each(prune: Pruner, value: list[Any], path: str, pruned: list[str]) -> None:
    for index, item in enumerate(value):
        prune(item, f"{path}[{index}]", pruned)


def _prune_everything(value: Any, path: str, pruned: list[str]) -> None:
    if type(value) is dict:
        pruned.extend(child(path, name) for name in value)
        value.clear()
    elif type(value) is list:
        _each(_prune_everything, value, path, pruned)
