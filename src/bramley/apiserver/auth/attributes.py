"""What a request wants, in the words of rights: verb, group, resource, namespace, name; or a plain path.

Derived from the method, the path and the query alone, like a real server does, so that a refusal comes before the server
tells whether there is such a resource at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bramley.apiserver.apimachinery import names, selectors
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NODE_NAME = "spec.nodeName"
# What stands behind a namespace's name and is not a resource inside of it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Attributes(msgspec.Struct, frozen=True, gc=False):
    """One question about rights; `path` is set and `resource` empty when it is not about a resource."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    # The Node that a field selector on Pods leaves.
    selected_node: str = ""

    @property
    def whole_resource(self) -> str:
        """Return the resource with its subresource behind a slash, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_request(user: User, method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """Return what a request asks for."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        return _resource(user, method, query, ("", parts[1]), parts[2:])
    if parts[0] == "apis" and len(parts) >= 4:
        return _resource(user, method, query, (parts[1], parts[2]), parts[3:])
    return Attributes(user, method.lower(), path=path)


def _resource(
    user: User, method: str, query: Mapping[str, str], served: tuple[str, str], rest: list[str]
) -> Attributes:
    verb = _VERBS.get(method, "")
    by_path = rest[0] in {"watch", "proxy"} and len(rest) > 1
    if by_path:
        verb, rest = rest[0], rest[1:]
    namespace, rest = _namespace(rest)
    name = rest[1] if len(rest) > 1 else ""
    # The old form of a watch by path has no subresources.
    subresource = rest[2] if len(rest) > 2 and not by_path else ""
    if not name and verb == "get":
        verb = "watch" if is_watch(query) else "list"
        name = _selected_name(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    node = _selected(query, _NODE_NAME) if rest[0] == "pods" else ""
    return Attributes(
        user, verb, *served, rest[0], subresource, namespace, name, selected_node=node
    )


def _namespace(rest: list[str]) -> tuple[str, list[str]]:
    if rest[0] != "namespaces" or len(rest) < 2:
        return "", rest
    inside = len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES
    return rest[1], rest[2:] if inside else rest


def is_watch(query: Mapping[str, str]) -> bool:
    """Tell whether a request for many objects wants to watch them."""
    # Exactly what the list's own options take for a watch: whoever may only list must not get one by spelling.
    return query.get("watch", "0") not in {"false", "0"}


def _selected_name(query: Mapping[str, str]) -> str:
    """Return the one name that a field selector leaves: who may see one object may list just that one."""
    name = _selected(query, "metadata.name")
    return "" if names.path_segment(name) else name


def _selected(query: Mapping[str, str], field: str) -> str:
    text = query.get("fieldSelector")
    if not text:
        return ""
    try:
        terms = selectors.parse_fields(text, lambda field: field)
    except ApiError:
        return ""
    return selectors.Selection(fields=terms).only(field) or ""
