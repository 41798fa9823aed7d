"""Discovery documents: `/api` and `/apis` aggregated in one document, and one document per group and version.

Documents are built at the first request and cached until the catalog changes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import no_such_page, no_such_path
from bramley.apiserver.http.exchange import JSON, NOT_MODIFIED, Header, Request, Response
from bramley.apiserver.http.request_info import segments_of
from bramley.apiserver.registry.resources import Catalog, ServedResource
from bramley.apiserver.rest import negotiation
from bramley.apiserver.rest.routes import SUBRESOURCES, Subresource

Json = dict[str, Any]

_ROOTS = frozenset({"api", "apis"})
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AGGREGATED_PARAMETERS = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
_CACHED: tuple[Header, ...] = ((b"vary", b"Accept"),)
_PUBLIC = (b"cache-control", b"public")
_SUBRESOURCE_VERBS = ["get", "patch", "update"]
# In the order in which kube-apiserver lists the verbs of custom resources.
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


class _Sub(msgspec.Struct, frozen=True):
    """A subresource in a document; group and version only where they differ from those of its resource."""

    name: str
    kind: str
    verbs: list[str]
    group: str = ""
    version: str = ""


class Documents:
    """The discovery documents of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changes = catalog.generation
        self._encoded: dict[tuple[str, bool], bytes] = {}

    def respond(self, request: Request) -> Response:
        """Return the requested document; raise a 404, 405 or 406."""
        path = "/".join(segments_of(request.path))
        is_aggregated = path in _ROOTS and negotiation.prefers(request, _AGGREGATED_PARAMETERS)
        body = self._document(path, is_aggregated=is_aggregated)
        if request.method not in {"GET", "HEAD"}:
            raise status.method_not_allowed()
        if not is_aggregated:
            negotiation.check_accepts_json(request)
            return Response(body)
        tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
        headers = ((b"etag", tag.encode()), *_CACHED)
        if request.header(b"if-none-match") == tag:
            return Response(b"", NOT_MODIFIED, headers=headers, cache=_PUBLIC)
        content_type = (JSON[0], _AGGREGATED.encode())
        return Response(body, content_type=content_type, headers=headers, cache=_PUBLIC)

    def _document(self, path: str, *, is_aggregated: bool) -> bytes:
        if self._changes != self._catalog.generation:
            self._changes, self._encoded = self._catalog.generation, {}
        key = (path, is_aggregated)
        if key not in self._encoded:
            build = aggregated if is_aggregated else document
            self._encoded[key] = msgspec.json.encode(build(path, self._catalog))
        return self._encoded[key]


def roots(catalog: Catalog) -> list[str]:
    """Return the paths of all discovery documents."""
    groups = catalog.groups()
    versions = [f"/apis/{group}/{each}" for group in groups for each in catalog.versions(group)]
    return ["/api", "/api/v1", "/apis", *(f"/apis/{group}" for group in groups), *versions]


def document(path: str, catalog: Catalog) -> Json:
    """Return the document at a path without slashes around it; raise a 404 if there is none."""
    match path.split("/"):
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["api", version]:
            return _resource_list(catalog, "", version)
        case ["apis", *group_version]:
            return _group_document(group_version, catalog)
    raise no_such_page()


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
        {
            "subresource": each.name,
            "responseKind": {"group": each.group, "version": each.version, "kind": each.kind},
            "verbs": each.verbs,
        }
        for each in _subresources(resource)
    ]
    group, version = (resource.group, resource.version) if resource.is_custom else ("", "")
    return {
        "resource": resource.plural,
        "responseKind": {"group": group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
        **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
        **({"categories": list(resource.categories)} if resource.categories else {}),
        **({"subresources": subresources} if subresources else {}),
    }


def _group_document(parts: list[str], catalog: Catalog) -> Json:
    if not parts:
        groups = [_group(catalog, group) for group in catalog.groups()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts[0] not in catalog.groups():
        raise no_such_page()
    if len(parts) == 1:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(catalog, parts[0])}
    return _resource_list(catalog, *parts)


def _group(catalog: Catalog, group: str) -> Json:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in catalog.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _served(catalog: Catalog, group: str, version: str) -> list[ServedResource]:
    resources = [each for each in catalog if (each.group, each.version) == (group, version)]
    return sorted(resources, key=lambda resource: resource.plural)


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
    group_version = (resource.group, resource.version) if resource.is_custom else ("", "")
    entries = []
    if resource.has_status:
        entries.append(_Sub("status", resource.kind, _SUBRESOURCE_VERBS, *group_version))
    if resource.scale is not None:
        entries.append(_Sub("scale", "Scale", _SUBRESOURCE_VERBS, "autoscaling", "v1"))
    entries += [
        _extra(resource, each)
        for (qualified, _), each in SUBRESOURCES.items()
        if qualified == resource.qualified
    ]
    return entries if resource.is_custom else sorted(entries, key=lambda each: each.name)


def _extra(resource: ServedResource, extra: Subresource) -> _Sub:
    if (extra.group, extra.version) == (resource.group, resource.version):
        return _Sub(extra.name, extra.kind, extra.verbs)
    return _Sub(extra.name, extra.kind, extra.verbs, extra.group, extra.version)
