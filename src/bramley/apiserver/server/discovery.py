"""Discovery: `/api` and `/apis` as one document with everything, and as before one per group and per version.

Documents are made when they are asked for and kept until what is served changes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import no_such_page, no_such_path
from bramley.apiserver.http.exchange import (
    JSON,
    NOT_MODIFIED,
    Answer,
    Header,
    Request,
)
from bramley.apiserver.http.paths import split
from bramley.apiserver.registry.resources import Catalog, ServedResource
from bramley.apiserver.rest import negotiation
from bramley.apiserver.rest.subresources import EXTRA, Subresource

Json = dict[str, Any]

_ROOTS = frozenset({"api", "apis"})
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_WANTED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
_CACHED: tuple[Header, ...] = ((b"vary", b"Accept"),)
_PUBLIC = (b"cache-control", b"public")
_SUBRESOURCE_VERBS = ["get", "patch", "update"]
# The same verbs in another order; people compare these lists.
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


class _Sub(msgspec.Struct, frozen=True):
    """A subresource as discovery tells of it; group and version only where they are not those of its resource."""

    name: str
    kind: str
    verbs: list[str]
    group: str = ""
    version: str = ""


class Documents:
    """The discovery documents of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made_of = catalog.changes
        self._made: dict[tuple[str, bool], bytes] = {}

    def answer(self, request: Request) -> Answer:
        """Return the document that a request asks for; raise a 404, 405 or 406."""
        path = request.path.strip("/")
        wants_all = path in _ROOTS and negotiation.asks_for(request, _WANTED)
        body = self._document(path, wants_all=wants_all)
        if request.method not in {"GET", "HEAD"}:
            raise status.method_not_allowed()
        if not wants_all:
            negotiation.check_plain(request)
            return Answer(body)
        tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
        headers = ((b"etag", tag.encode()), *_CACHED)
        if request.header(b"if-none-match") == tag:
            return Answer(b"", NOT_MODIFIED, headers=headers, cache=_PUBLIC)
        content_type = (JSON[0], _AGGREGATED.encode())
        return Answer(body, content_type=content_type, headers=headers, cache=_PUBLIC)

    def _document(self, path: str, *, wants_all: bool) -> bytes:
        if self._made_of != self._catalog.changes:
            self._made_of, self._made = self._catalog.changes, {}
        key = (path, wants_all)
        if key not in self._made:
            made = aggregated(path, self._catalog) if wants_all else document(path, self._catalog)
            self._made[key] = msgspec.json.encode(made)
        return self._made[key]


def is_document(path: str) -> bool:
    """Tell whether a path names a discovery document and not a resource."""
    parts = split(path)
    return len(parts) <= (3 if parts[0] == "apis" else 2)


def roots(catalog: Catalog) -> list[str]:
    """Return the paths of all discovery documents."""
    groups = catalog.groups()
    versions = [f"/apis/{group}/{each}" for group in groups for each in catalog.versions(group)]
    return ["/api", "/api/v1", "/apis", *(f"/apis/{group}" for group in groups), *versions]


def document(path: str, catalog: Catalog) -> Json:
    """Return the discovery document at a path; raise a 404 if there is none."""
    parts = split(path)
    if parts[0] == "apis":
        return _group_document(parts[1:], catalog)
    return _resource_list(catalog, "", parts[1]) if len(parts) == 2 else _core_versions()


def aggregated(root: str, catalog: Catalog) -> Json:
    """Return everything below `/api` or `/apis` as one document."""
    groups = [""] if root == "api" else catalog.groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(catalog, group) for group in groups],
    }


def _aggregated_group(catalog: Catalog, group: str) -> Json:
    versions = [
        {
            "version": version,
            "resources": [_aggregated_resource(each) for each in _served(catalog, group, version)],
            "freshness": "Current",
        }
        for version in catalog.versions(group)
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _aggregated_resource(resource: ServedResource) -> Json:
    subresources = [
        {"subresource": each.name, "responseKind": _response_kind(each), "verbs": each.verbs}
        for each in _subresources(resource)
    ]
    own = (resource.group, resource.version) if resource.is_custom else ("", "")
    return {
        "resource": resource.plural,
        "responseKind": {"group": own[0], "version": own[1], "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
        **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
        **({"categories": list(resource.categories)} if resource.categories else {}),
        **({"subresources": subresources} if subresources else {}),
    }


def _response_kind(sub: _Sub) -> Json:
    return {"group": sub.group, "version": sub.version, "kind": sub.kind}


def _group_document(parts: list[str], catalog: Catalog) -> Json:
    if not parts:
        groups = [_group(catalog, group) for group in catalog.groups()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts[0] not in catalog.groups():
        raise no_such_page()
    if len(parts) == 1:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(catalog, parts[0])}
    return _resource_list(catalog, *parts)


def _core_versions() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(catalog: Catalog, group: str) -> Json:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in catalog.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _served(catalog: Catalog, group: str, version: str) -> list[ServedResource]:
    found = [each for each in catalog if (each.group, each.version) == (group, version)]
    return sorted(found, key=lambda resource: resource.plural)


def _resource_list(catalog: Catalog, group: str, version: str) -> Json:
    served = _served(catalog, group, version)
    if not served:
        raise no_such_path()
    entries: list[Json] = []
    for each in served:
        entries += _entries(each)
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": served[0].api_version,
        "resources": entries,
    }


def _entries(resource: ServedResource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return [entry, *(_entry(resource, each) for each in _subresources(resource))]


def _entry(resource: ServedResource, sub: _Sub) -> Json:
    is_foreign = sub.version and (sub.group, sub.version) != (resource.group, resource.version)
    return {
        "name": f"{resource.plural}/{sub.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        **({"group": sub.group, "version": sub.version} if is_foreign else {}),
        "kind": sub.kind,
        "verbs": sub.verbs,
    }


def _verbs(resource: ServedResource) -> list[str]:
    return _CUSTOM_VERBS if resource.is_custom else list(resource.verbs)


def _subresources(resource: ServedResource) -> list[_Sub]:
    own = (resource.group, resource.version) if resource.is_custom else ("", "")
    found = []
    if resource.has_status:
        found.append(_Sub("status", resource.kind, _SUBRESOURCE_VERBS, *own))
    if resource.scale is not None:
        found.append(_Sub("scale", "Scale", _SUBRESOURCE_VERBS, "autoscaling", "v1"))
    found += [
        _extra(resource, each)
        for (qualified, _), each in EXTRA.items()
        if qualified == resource.qualified
    ]
    return found if resource.is_custom else sorted(found, key=lambda each: each.name)


def _extra(resource: ServedResource, extra: Subresource) -> _Sub:
    if (extra.group, extra.version) == (resource.group, resource.version):
        return _Sub(extra.name, extra.kind, extra.verbs)
    return _Sub(extra.name, extra.kind, extra.verbs, extra.group, extra.version)
