"""Embedded resources: an object inside an object that has an apiVersion, a kind and metadata of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.schema.tree import Visit, compile_tree
from bramley.apiserver.schema.values import ABSENT, child
from bramley.base.errors import Cause

Schema = Mapping[str, Any]


def compile_embedded(schema: Schema) -> Callable[[Any], list[Cause]]:
    """Return a function that checks the type and metadata of every embedded resource."""
    visit = compile_tree(schema, _embedded_here)

    def find(value: Any) -> list[Cause]:
        found: list[Cause] = []
        if visit is not None:
            visit(value, ABSENT, "", found)
        return found

    return find


def _embedded_here(schema: Schema) -> Visit | None:
    return _resource if schema.get("x-kubernetes-embedded-resource") else None


def _resource(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
    if type(value) is not dict:
        return
    _text(value, "apiVersion", path, out)
    _text(value, "kind", path, out)
    _api_version(value.get("apiVersion"), child(path, "apiVersion"), out)
    _kind(value.get("kind"), child(path, "kind"), out)
    metadata = value.get("metadata", {})
    if type(metadata) is not dict:
        detail = "json: cannot unmarshal into Go value of type v1.ObjectMeta"
        out.append(causes.invalid(child(path, "metadata"), metadata, detail))


def _text(value: dict[str, Any], name: str, path: str, out: list[Cause]) -> None:
    field = child(path, name)
    if name not in value:
        out.append(causes.required(field))
    elif type(value[name]) is not str:
        out.append(causes.invalid(field, value[name], "must be a string"))
    elif not value[name]:
        out.append(causes.invalid(field, "", "must not be empty"))


def _api_version(value: Any, field: str, out: list[Cause]) -> None:
    if type(value) is str and value.count("/") > 1:
        out.append(causes.invalid(field, value, f"unexpected GroupVersion string: {value}"))


def _kind(value: Any, field: str, out: list[Cause]) -> None:
    wrong = names.dns1035_label(value.lower()) if type(value) is str and value else []
    if wrong:
        detail = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        out.append(causes.invalid(field, value, detail))
