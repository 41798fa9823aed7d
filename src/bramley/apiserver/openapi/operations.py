"""The paths of a document: what may be done with each resource, and with which parameters.

Clients look here for two things: which kind is behind a path, and whether a write knows `dryRun` and `fieldValidation`. So
operations have their parameters, bodies and kinds, and no descriptions of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bramley.apiserver.openapi.custom import KIND, REFERENCE
from bramley.apiserver.openapi.packaged import DELETE_OPTIONS, PATCH, SCALE, STATUS
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
_PART = {"get": "get", "update": "put", "patch": "patch"}
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_CUSTOM_PATCHES = _PATCHES[:3]


class Names(NamedTuple):
    """The names of a resource's schemas."""

    own: str
    lists: str


def paths(resource: ServedResource, names: Names) -> Json:
    """Return the paths of a resource with their operations."""
    return dict(_paths(resource, names))


def _paths(resource: ServedResource, names: Names) -> Iterator[tuple[str, Json]]:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    root = f"{root}/{resource.version}"
    kind = (resource.group, resource.version, resource.kind)
    if resource.namespaced:
        everywhere = {"list": "get"} if "list" in resource.verbs else {}
        if everywhere:
            operations = _operations(resource, everywhere, names, kind)
            yield f"{root}/{resource.plural}", operations
        root = f"{root}/namespaces/{{namespace}}"
    collection = f"{root}/{resource.plural}"
    yield collection, _located(_operations(resource, _COLLECTION, names, kind), collection)
    if resource.is_virtual:
        return
    one = f"{collection}/{{name}}"
    yield one, _located(_operations(resource, _OBJECT, names, kind), one)
    if resource.has_status:
        path = f"{one}/status"
        yield path, _located(_operations(resource, _PART, names, kind), path)
    if resource.scale is not None:
        path = f"{one}/scale"
        scales = Names(SCALE, SCALE)
        # What a definition scales is said to be of its own kind.
        scale = kind if resource.is_custom else ("autoscaling", "v1", "Scale")
        yield path, _located(_operations(resource, _PART, scales, scale), path)


def _located(operations: Json, path: str) -> Json:
    """Return operations with the parameters that their path has."""
    found = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
    parameters = [{"name": each, "in": "path", "required": True, "schema": _TEXT} for each in found]
    return {**operations, "parameters": parameters} if parameters else operations


def _operations(
    resource: ServedResource, verbs: dict[str, str], names: Names, kind: tuple[str, str, str]
) -> Json:
    return {
        method: _operation(resource, verb, names, kind)
        for verb, method in verbs.items()
        if verb in resource.verbs
    }


def _operation(
    resource: ServedResource, verb: str, names: Names, kind: tuple[str, str, str]
) -> Json:
    group, version, name = kind
    parameters = [
        {"name": each, "in": "query", "schema": type} for each, type in _PARAMETERS[verb].items()
    ]
    made: Json = {
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": _content(_answered(verb, names))}},
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        KIND: {"group": group, "version": version, "kind": name},
    }
    body = _body(resource, verb, names)
    return {**made, "requestBody": body} if body else made


def _answered(verb: str, names: Names) -> str:
    if verb == "list":
        return names.lists
    return STATUS if verb in {"delete", "deletecollection"} else names.own


def _body(resource: ServedResource, verb: str, names: Names) -> Json:
    if verb == "patch":
        media = _CUSTOM_PATCHES if resource.is_custom else _PATCHES
        return {"content": _content(PATCH, *media), "required": True}
    if verb in {"create", "update"}:
        return {"content": _content(names.own), "required": True}
    return {"content": _content(DELETE_OPTIONS)} if verb.startswith("delete") else {}


def _content(name: str, *media: str) -> Json:
    schema = {"schema": {"$ref": f"{REFERENCE}{name}"}}
    return dict.fromkeys(media or ("application/json",), schema)
