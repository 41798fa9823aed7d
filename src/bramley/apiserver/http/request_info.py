"""RequestInfo: the parsed method, path and query of a request, as in kube-apiserver.

Parsed once per request; routing, authorization, the audit log and the metrics all use the result. A second parser that
disagreed with this one would be an authorization bypass, so no other module splits the path of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from bramley.apiserver.apimachinery import names, selectors
from bramley.apiserver.apimachinery.status import ApiError, no_such_page, no_such_path
from bramley.apiserver.registry.resources import Catalog, ServedResource
from bramley.apiserver.store.records import Key

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# Deprecated requests name their verb in the path.
_VERB_PREFIXES = frozenset({"watch", "proxy"})
# Subresources of a Namespace; anything else behind its name is a resource inside it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
# No name may be one of these, and proxies in front of the server may resolve them to another path.
_INVALID_SEGMENTS = frozenset({"", ".", ".."})
_CACHED = 4096
# No path of an object is longer; caching longer ones would only use memory.
MAX_CACHED_PATH_LENGTH = 1024


class RequestInfo(msgspec.Struct, frozen=True, gc=False):
    """What a request is about.

    For a request about resources `parts` holds the path's segments from the resource on. A request about anything else has
    its lower-case method as verb, and no other field than `path`.
    """

    path: str
    verb: str
    is_resource_request: bool = False
    api_group: str = ""
    api_version: str = ""
    # As in Kubernetes, a request for a single Namespace has the namespace of that name.
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    # The name in the path, or the only one that a list's field selector allows.
    name: str = ""
    field_selector: str = ""
    # `watch` or `proxy` where the path begins with it.
    verb_prefix: str = ""
    parts: tuple[str, ...] = ()
    # Whether the path names a namespace before the resource.
    in_namespace: bool = False

    @classmethod
    def parse(cls, method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
        """Return what a request is about; a malformed path is not about a resource."""
        # Clients repeat most requests without a query, such as heartbeats.
        if not query and len(path) <= MAX_CACHED_PATH_LENGTH:
            return _parse_cached(method, path)
        return _parse(method, path, query)


@lru_cache(_CACHED)
def _parse_cached(method: str, path: str) -> RequestInfo:
    return _parse(method, path, {})


def _parse(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    segments = segments_of(path)
    if segments[0] == "api" and len(segments) > 2:
        return _resource_request(method, path, query, ("", segments[1]), segments[2:])
    if segments[0] == "apis" and len(segments) > 3:
        return _resource_request(method, path, query, (segments[1], segments[2]), segments[3:])
    return RequestInfo(path, method.lower())


def segments_of(path: str) -> list[str]:
    """Return the decoded path's segments; one slash at the end is ignored, and a malformed path has a single empty segment."""
    segments = path.removeprefix("/").removesuffix("/").split("/")
    return segments if _INVALID_SEGMENTS.isdisjoint(segments) else [""]


def _resource_request(
    method: str, path: str, query: Mapping[str, str], api: tuple[str, str], parts: list[str]
) -> RequestInfo:
    verb, prefix = _VERBS.get(method, ""), ""
    if parts[0] in _VERB_PREFIXES and len(parts) > 1:
        verb = prefix = parts[0]
        parts = parts[1:]
    namespace, in_namespace = "", False
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        in_namespace = len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES
        if in_namespace:
            parts = parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    field_selector = query.get("fieldSelector", "")
    if not name and verb == "get":
        verb = "watch" if is_watch(query) else "list"
        # As in Kubernetes: with the right to see one object a client may list just that one.
        name = _selected_name(field_selector) if field_selector else ""
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        path,
        verb,
        is_resource_request=True,
        api_group=api[0],
        api_version=api[1],
        namespace=namespace,
        resource=parts[0],
        # Deprecated paths with a verb have no subresources.
        subresource=parts[2] if len(parts) > 2 and not prefix else "",
        name=name,
        field_selector=field_selector,
        verb_prefix=prefix,
        parts=tuple(parts),
        in_namespace=in_namespace,
    )


def is_watch(query: Mapping[str, str]) -> bool:
    """Return whether a request for many objects is a watch."""
    # The same spellings as in the options of a list: the right to list must not give a watch by another spelling.
    return query.get("watch", "0") not in {"false", "0"}


def _selected_name(field_selector: str) -> str:
    name = selected_value(field_selector, "metadata.name")
    return "" if names.path_segment(name) else name


def selected_value(field_selector: str, field: str) -> str:
    """Return the one value of a field that a field selector allows, empty if there is not exactly one."""
    if not field_selector:
        return ""
    try:
        terms = selectors.parse_fields(field_selector, lambda field: field)
    except ApiError:
        return ""
    return selectors.Selection(fields=terms).required_value(field) or ""


class Target(NamedTuple):
    """The served resource and the object that a request names; `namespace` and `name` are empty where the path has none."""

    resource: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    legacy_watch: bool = False

    @property
    def key(self) -> Key:
        """Return the key of the object in the store."""
        return Key(self.resource.stored_name, self.namespace, self.name)


def target_of(info: RequestInfo, catalog: Catalog) -> Target:
    """Return what a request about resources names; raise a 404 if nothing is served there."""
    parts = info.parts[:3] if info.parts[2:3] == ("proxy",) else info.parts
    if len(parts) > 3 or info.verb_prefix == "proxy":
        raise no_such_path()
    resource = catalog.find(info.api_group, info.api_version, info.resource)
    if resource is None:
        builtin = catalog.is_builtin(info.api_group, info.api_version)
        raise no_such_path() if builtin else no_such_page()
    namespace = info.namespace if info.in_namespace else ""
    name, subresource, *_ = [*parts[1:], "", ""]
    if not _in_scope(resource, namespace, name):
        raise no_such_path()
    return Target(resource, namespace, name, subresource, info.verb_prefix == "watch")


def _in_scope(resource: ServedResource, namespace: str, name: str) -> bool:
    if resource.namespaced:
        return bool(namespace) or not name
    return not namespace
