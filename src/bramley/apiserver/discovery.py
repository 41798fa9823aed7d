"""Discovery as it always was: `/api`, `/apis`, and one document per group and per version."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.paths import split
from bramley.apiserver.resources import Catalog, ServedResource
from bramley.apiserver.status import no_such_path

Json = dict[str, Any]

_SUBRESOURCE_VERBS = ["get", "patch", "update"]
# The same verbs in another order; people compare these lists.
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


def is_document(path: str) -> bool:
    """Tell whether a path names a discovery document and not a resource."""
    parts = split(path)
    return len(parts) <= (3 if parts[0] == "apis" else 2)


def document(path: str, catalog: Catalog) -> Json:
    """Return the discovery document at a path; raise a 404 if there is none."""
    parts = split(path)
    if parts[0] == "apis":
        return _group_document(parts[1:], catalog)
    return _resource_list(catalog, "", parts[1]) if len(parts) == 2 else _core_versions()


def _group_document(parts: list[str], catalog: Catalog) -> Json:
    if not parts:
        groups = [_group(catalog, group) for group in catalog.groups()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts[0] not in catalog.groups():
        raise no_such_path()
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


def _resource_list(catalog: Catalog, group: str, version: str) -> Json:
    served = [each for each in catalog if (each.group, each.version) == (group, version)]
    if not served:
        raise no_such_path()
    entries: list[Json] = []
    for each in sorted(served, key=lambda resource: resource.plural):
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
        "verbs": _CUSTOM_VERBS if resource.is_custom else list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    entries = [entry]
    if resource.has_status:
        entries.append(_subresource(resource, "status", kind=resource.kind))
    if resource.scale is not None:
        entries.append(
            _subresource(resource, "scale", group="autoscaling", version="v1", kind="Scale")
        )
    return entries


def _subresource(resource: ServedResource, name: str, **kind: str) -> Json:
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        **kind,
        "verbs": _SUBRESOURCE_VERBS,
    }
