"""The schemas of the OpenAPI documents: packaged ones for built-in kinds, and those of custom resources.

The packaged ones are extracted from a kube-apiserver by `tools/openapi.py` and passed on undecoded.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from bramley.apiserver.registry.resources import Json, ServedResource

_FILE = "schemas.json.gz"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."

OBJECT_META = f"{_META}ObjectMeta"
LIST_META = f"{_META}ListMeta"
STATUS = f"{_META}Status"
PATCH = f"{_META}Patch"
DELETE_OPTIONS = f"{_META}DeleteOptions"
SCALE = "io.k8s.api.autoscaling.v1.Scale"

Kind = tuple[str, str, str]
REFERENCE = "#/components/schemas/"
KIND = "x-kubernetes-group-version-kind"

_DOCS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION = {
    "description": "APIVersion defines the versioned schema of this representation of an object. Servers should convert"
    " recognized schemas to the latest internal value, and may reject unrecognized values. More info:"
    f" {_DOCS}#resources",
    "type": "string",
}
_KIND = {
    "description": "Kind is a string value representing the REST resource this object represents. Servers may infer this"
    " from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info:"
    f" {_DOCS}#types-kinds",
    "type": "string",
}
_OBJECT_META = {
    "description": f"Standard object's metadata. More info: {_DOCS}#metadata",
    "allOf": [{"$ref": f"{REFERENCE}{OBJECT_META}"}],
}
_LIST_META = {
    "description": f"Standard list metadata. More info: {_DOCS}#types-kinds",
    "allOf": [{"$ref": f"{REFERENCE}{LIST_META}"}],
}
_EMBEDDED = {
    "apiVersion": {
        "description": "apiVersion defines the versioned schema of this representation of an object. More info:"
        f" {_DOCS}#resources",
        "type": "string",
    },
    "kind": {
        "description": "kind is a string value representing the type of this object. In CamelCase. More info:"
        f" {_DOCS}#types-kinds",
        "type": "string",
    },
    "metadata": _OBJECT_META,
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
# Keykeywords of a definition that a structural schema drops.
_DROPPED_KEYWORDS = frozenset({"example", "externalDocs", "id", "$schema", "definitions"})


class Schema(msgspec.Struct, frozen=True):
    """One packaged schema: its kinds, the schemas that it refers to, and its JSON."""

    kinds: list[Kind]
    needs: list[str]
    schema: msgspec.Raw


@cache
def builtin_schemas() -> dict[str, Schema]:
    """Return all schemas by name."""
    data = resources.files(__package__).joinpath(_FILE).read_bytes()
    return msgspec.json.decode(gzip.decompress(data), type=dict[str, Schema])


@cache
def _by_kind() -> dict[Kind, str]:
    # Options and Status are listed for every group; the schema of a kind is listed for one or two.
    items = ((name, each) for name, each in builtin_schemas().items() if not name.startswith(_META))
    return {kind: name for name, each in items for kind in each.kinds}


def builtin_name(group: str, version: str, kind: str) -> str | None:
    """Return the name of a built-in kind's schema, if it has one."""
    return _by_kind().get((group, version, kind))


def closure(roots: Iterable[str]) -> dict[str, msgspec.Raw]:
    """Return these schemas and all that they refer to, by name."""
    reachable: dict[str, msgspec.Raw] = {}
    builtin, pending = builtin_schemas(), list(roots)
    while pending:
        name = pending.pop()
        if name in reachable or name not in builtin:
            continue
        reachable[name] = builtin[name].schema
        pending += builtin[name].needs
    return dict(sorted(reachable.items()))


def custom_name(resource: ServedResource, kind: str) -> str:
    """Return the name of a custom resource's schema: its group reversed, its version, the kind."""
    group = ".".join(reversed(resource.group.split(".")))
    return f"{group}.{resource.version}.{kind}"


def custom_schemas(resource: ServedResource) -> dict[str, Json]:
    """Return the schemas of a custom resource and of its lists, by name."""
    name = custom_name(resource, resource.kind)
    lists = custom_name(resource, resource.list_kind)
    return {name: _with_kind(resource, resource.kind, _object(resource)), lists: _list(resource)}


def _object(resource: ServedResource) -> Json:
    if resource.schema is None:
        return {"type": "object"}
    schema: Json = _expanded(resource.schema)
    properties = schema.get("properties") or {}
    meta = {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": _OBJECT_META}
    return {**schema, "properties": {**properties, **meta}}


def _list(resource: ServedResource) -> Json:
    item = {"$ref": f"{REFERENCE}{custom_name(resource, resource.kind)}"}
    description = f"List of {resource.plural}. More info: {_DOCS}"
    schema = {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _API_VERSION,
            "items": {"description": description, "type": "array", "items": item},
            "kind": _KIND,
            "metadata": _LIST_META,
        },
    }
    return _with_kind(resource, resource.list_kind, schema)


def _with_kind(resource: ServedResource, kind: str, schema: Json) -> Json:
    group_version_kind = {"group": resource.group, "kind": kind, "version": resource.version}
    fields = [{"fieldPath": each.name} for each in resource.selectable]
    selectable = {"x-kubernetes-selectable-fields": fields} if fields else {}
    return {**schema, KIND: [group_version_kind], **selectable}


def _expanded(schema: Any) -> Any:
    """Return a schema with its extensions expanded."""
    if not isinstance(schema, dict):
        return schema
    expanded = {
        keyword: _expanded_value(keyword, value)
        for keyword, value in schema.items()
        if keyword not in _DROPPED_KEYWORDS
    }
    if expanded.get("x-kubernetes-int-or-string"):
        expanded = _int_or_string(expanded)
    if expanded.get("x-kubernetes-embedded-resource"):
        expanded = _embedded(expanded)
    return expanded


def _expanded_value(keyword: str, value: Any) -> Any:
    if keyword == "properties":
        return {name: _expanded(each) for name, each in value.items()}
    return _expanded(value) if keyword in {"items", "additionalProperties"} else value


def _int_or_string(schema: Json) -> Json:
    if "anyOf" not in schema and not _begins_with_int_or_string(schema):
        return {**schema, "anyOf": _INT_OR_STRING}
    if schema.get("anyOf") == _INT_OR_STRING or _begins_with_int_or_string(schema):
        return schema
    return {**schema, "allOf": [{"anyOf": _INT_OR_STRING}, *schema.get("allOf", ())]}


def _begins_with_int_or_string(schema: Json) -> bool:
    every = schema.get("allOf") or [{}]
    return bool(every[0].get("anyOf") == _INT_OR_STRING)


def _embedded(schema: Json) -> Json:
    required = list(schema.get("required") or ())
    required += [each for each in ("kind", "apiVersion") if each not in required]
    properties = {**(schema.get("properties") or {}), **_EMBEDDED}
    return {**schema, "properties": properties, "required": required}
