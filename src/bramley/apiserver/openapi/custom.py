"""The schemas of custom kinds: as their definitions have them, with the metadata that every object has."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.openapi.packaged import LIST_META, OBJECT_META
from bramley.apiserver.registry.resources import Json, ServedResource

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
# What a definition may say and a structural schema does not keep.
_LEFT_OUT = frozenset({"example", "externalDocs", "id", "$schema", "definitions"})


def name_of(resource: ServedResource, kind: str) -> str:
    """Return the name of a custom kind's schema: its group backwards, its version, the kind."""
    group = ".".join(reversed(resource.group.split(".")))
    return f"{group}.{resource.version}.{kind}"


def schemas(resource: ServedResource) -> dict[str, Json]:
    """Return the schemas of a custom kind and of its lists, by name."""
    own = name_of(resource, resource.kind)
    lists = name_of(resource, resource.list_kind)
    return {own: _with_kind(resource, resource.kind, _object(resource)), lists: _list(resource)}


def _object(resource: ServedResource) -> Json:
    if resource.schema is None:
        return {"type": "object"}
    schema: Json = _unfolded(resource.schema)
    own = schema.get("properties") or {}
    meta = {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": _OBJECT_META}
    return {**schema, "properties": {**own, **meta}}


def _list(resource: ServedResource) -> Json:
    item = {"$ref": f"{REFERENCE}{name_of(resource, resource.kind)}"}
    told = f"List of {resource.plural}. More info: {_DOCS}"
    schema = {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _API_VERSION,
            "items": {"description": told, "type": "array", "items": item},
            "kind": _KIND,
            "metadata": _LIST_META,
        },
    }
    return _with_kind(resource, resource.list_kind, schema)


def _with_kind(resource: ServedResource, kind: str, schema: Json) -> Json:
    told = {"group": resource.group, "kind": kind, "version": resource.version}
    fields = [{"fieldPath": each.name} for each in resource.selectable]
    more = {"x-kubernetes-selectable-fields": fields} if fields else {}
    return {**schema, KIND: [told], **more}


def _unfolded(schema: Any) -> Any:
    """Return a schema with what its extensions stand for."""
    if not isinstance(schema, dict):
        return schema
    made = {word: _inside(word, value) for word, value in schema.items() if word not in _LEFT_OUT}
    if made.get("x-kubernetes-int-or-string"):
        made = _int_or_string(made)
    if made.get("x-kubernetes-embedded-resource"):
        made = _embedded(made)
    return made


def _inside(word: str, value: Any) -> Any:
    if word == "properties":
        return {name: _unfolded(each) for name, each in value.items()}
    return _unfolded(value) if word in {"items", "additionalProperties"} else value


def _int_or_string(schema: Json) -> Json:
    if "anyOf" not in schema and not _says_so_first(schema):
        return {**schema, "anyOf": _INT_OR_STRING}
    if schema.get("anyOf") == _INT_OR_STRING or _says_so_first(schema):
        return schema
    return {**schema, "allOf": [{"anyOf": _INT_OR_STRING}, *schema.get("allOf", ())]}


def _says_so_first(schema: Json) -> bool:
    every = schema.get("allOf") or [{}]
    return bool(every[0].get("anyOf") == _INT_OR_STRING)


def _embedded(schema: Json) -> Json:
    required = list(schema.get("required") or ())
    required += [each for each in ("kind", "apiVersion") if each not in required]
    properties = {**(schema.get("properties") or {}), **_EMBEDDED}
    return {**schema, "properties": properties, "required": required}
