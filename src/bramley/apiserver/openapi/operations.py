"""The paths of a document: the operations on each resource with their parameters.

Clients read two things here: the kind behind a path, and whether a write supports `dryRun` and `fieldValidation`. So operations
have parameters, bodies and kinds, but no descriptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bramley.apiserver.openapi.schemas import DELETE_OPTIONS, KIND, PATCH, REFERENCE, SCALE, STATUS
from bramley.apiserver.registry.resources import Json, ServedResource

_TEXT, _NUMBER, _FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_LIST = {
    "allowWatchBookmarks": _FLAG,
    "continue": _TEXT,
    "fieldSelector": _TEXT,
    "labelSelector": _TEXT,
    "limit": _NUMBER,
    "resourceVersion": _TEXT,
    "resourceVersionMatch": _TEXT,
    "sendInitialEvents": _FLAG,
    "timeoutSeconds": _NUMBER,
    "watch": _FLAG,
}
_WRITE = {"dryRun": _TEXT, "fieldManager": _TEXT, "fieldValidation": _TEXT}
_DELETE = {
    "dryRun": _TEXT,
    "gracePeriodSeconds": _NUMBER,
    "orphanDependents": _FLAG,
    "propagationPolicy": _TEXT,
}
_PARAMETERS: dict[str, Json] = {
    "list": _LIST,
    "get": {},
    "create": _WRITE,
    "update": _WRITE,
    "patch": {**_WRITE, "force": _FLAG},
    "delete": _DELETE,
    "deletecollection": {**_LIST, **_DELETE},
}
_ACTIONS = {"create": "post", "update": "put"}
_COLLECTION = {"list": "get", "create": "post", "deletecollection": "delete"}
_OBJECT = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
_SUBRESOURCE = {"get": "get", "update": "put", "patch": "patch"}
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_CUSTOM_PATCHES = _PATCHES[:3]


GroupVersionKind = tuple[str, str, str]


class Names(NamedTuple):
    """The names of a resource's schemas."""

    kind: str
    lists: str


def paths(resource: ServedResource, names: Names) -> Json:
    """Return the paths of a resource with their operations."""
    return dict(_paths(resource, names))


def _paths(resource: ServedResource, names: Names) -> Iterator[tuple[str, Json]]:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    root = f"{root}/{resource.version}"
    kind = (resource.group, resource.version, resource.kind)
    if resource.namespaced:
        if "list" in resource.verbs:
            yield _path(resource, f"{root}/{resource.plural}", {"list": "get"}, names, kind)
        root = f"{root}/namespaces/{{namespace}}"
    collection = f"{root}/{resource.plural}"
    yield _path(resource, collection, _COLLECTION, names, kind)
    if resource.is_virtual:
        return
    item_path = f"{collection}/{{name}}"
    yield _path(resource, item_path, _OBJECT, names, kind)
    if resource.has_status:
        yield _path(resource, f"{item_path}/status", _SUBRESOURCE, names, kind)
    if resource.scale is not None:
        # As in kube-apiserver, the scale of a custom resource is listed under the resource's own kind.
        scale = kind if resource.is_custom else ("autoscaling", "v1", "Scale")
        yield _path(resource, f"{item_path}/scale", _SUBRESOURCE, Names(SCALE, SCALE), scale)


def _path(
    resource: ServedResource, path: str, verbs: dict[str, str], names: Names, kind: GroupVersionKind
) -> tuple[str, Json]:
    """Return a path with its operations and the parameters in it."""
    operations: Json = {
        method: _operation(resource, verb, names, kind)
        for verb, method in verbs.items()
        if verb in resource.verbs
    }
    keys = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
    parameters = [{"name": each, "in": "path", "required": True, "schema": _TEXT} for each in keys]
    return path, {**operations, "parameters": parameters} if parameters else operations


def _operation(resource: ServedResource, verb: str, names: Names, kind: GroupVersionKind) -> Json:
    group, version, name = kind
    parameters = [
        {"name": each, "in": "query", "schema": type} for each, type in _PARAMETERS[verb].items()
    ]
    operation: Json = {
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "content": _content(_response_schema(verb, names))}
        },
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        KIND: {"group": group, "version": version, "kind": name},
    }
    body = _body(resource, verb, names)
    return {**operation, "requestBody": body} if body else operation


def _response_schema(verb: str, names: Names) -> str:
    if verb == "list":
        return names.lists
    return STATUS if verb in {"delete", "deletecollection"} else names.kind


def _body(resource: ServedResource, verb: str, names: Names) -> Json:
    if verb == "patch":
        media = _CUSTOM_PATCHES if resource.is_custom else _PATCHES
        return {"content": _content(PATCH, *media), "required": True}
    if verb in {"create", "update"}:
        return {"content": _content(names.kind), "required": True}
    return {"content": _content(DELETE_OPTIONS)} if verb.startswith("delete") else {}


def _content(name: str, *media: str) -> Json:
    schema = {"schema": {"$ref": f"{REFERENCE}{name}"}}
    return dict.fromkeys(media or ("application/json",), schema)
