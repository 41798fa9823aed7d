"""The handlers of methods, subresources and kinds that are not stored; discovery lists the same tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.rest import (
    create,
    delete,
    eviction,
    get_list,
    metrics,
    node_agents,
    patch,
    reviews,
    subresources,
    token_requests,
    update,
)
from bramley.apiserver.rest.server import Server

Handler = Callable[[Server, Request, Target], Awaitable[Response]]

VERBS: Mapping[str, str] = MappingProxyType(
    {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
)


class Subresource(msgspec.Struct, frozen=True):
    """A subresource of a built-in kind; group, version and kind are those of its bodies."""

    name: str
    kind: str
    group: str
    version: str
    methods: Mapping[str, Handler]

    @property
    def verbs(self) -> list[str]:
        """Return the verbs of its methods, sorted as discovery shows them."""
        return sorted(VERBS[method] for method in self.methods)


def _by_path(*listed: tuple[str, Subresource]) -> Mapping[tuple[str, str], Subresource]:
    return MappingProxyType({(qualified, each.name): each for qualified, each in listed})


def _pod_part(name: str) -> Subresource:
    methods = {
        "GET": subresources.get_pod,
        "PUT": subresources.replace_pod_part,
        "PATCH": subresources.patch_pod_part,
    }
    return Subresource(name, "Pod", "", "v1", methods)


def _stream_subresource(name: str, kind: str, handler: Handler) -> Subresource:
    return Subresource(name, kind, "", "v1", {"GET": handler, "POST": handler})


def _proxy_subresource(kind: str) -> Subresource:
    return Subresource("proxy", kind, "", "v1", dict.fromkeys(VERBS, node_agents.proxy))


def _token_subresource() -> Subresource:
    methods = {"POST": token_requests.create}
    return Subresource("token", "TokenRequest", "authentication.k8s.io", "v1", methods)


# By the qualified name of the resource (`pods`, `deployments.apps`) and the subresource; status and scale are fields of a resource.
SUBRESOURCES: Mapping[tuple[str, str], Subresource] = _by_path(
    (
        "namespaces",
        Subresource("finalize", "Namespace", "", "v1", {"PUT": subresources.finalize_namespace}),
    ),
    ("nodes", _proxy_subresource("NodeProxyOptions")),
    ("pods", _stream_subresource("attach", "PodAttachOptions", node_agents.exec_or_attach)),
    ("pods", Subresource("binding", "Binding", "", "v1", {"POST": subresources.create_binding})),
    ("pods", _pod_part("ephemeralcontainers")),
    (
        "pods",
        Subresource("eviction", "Eviction", "policy", "v1", {"POST": eviction.create_eviction}),
    ),
    ("pods", _stream_subresource("exec", "PodExecOptions", node_agents.exec_or_attach)),
    ("pods", Subresource("log", "Pod", "", "v1", {"GET": node_agents.pod_log})),
    ("pods", _stream_subresource("portforward", "PodPortForwardOptions", node_agents.port_forward)),
    ("pods", _proxy_subresource("PodProxyOptions")),
    ("pods", _pod_part("resize")),
    ("serviceaccounts", _token_subresource()),
    ("services", _proxy_subresource("ServiceProxyOptions")),
)

# Handlers of POST by the qualified name of a kind that is not stored; its ServedResource has `is_virtual`.
VIRTUAL: Mapping[str, Handler] = MappingProxyType(
    {
        "bindings": subresources.create_binding,
        "localsubjectaccessreviews.authorization.k8s.io": reviews.review_local,
        "selfsubjectaccessreviews.authorization.k8s.io": reviews.review_self,
        "selfsubjectreviews.authentication.k8s.io": reviews.review_caller,
        "selfsubjectrulesreviews.authorization.k8s.io": reviews.review_rules,
        "subjectaccessreviews.authorization.k8s.io": reviews.review_subject,
        "tokenreviews.authentication.k8s.io": reviews.review_token,
    }
)

# Handlers of GET by the qualified name of a kind that is computed when it is read; its ServedResource has `is_computed`.
COMPUTED: Mapping[str, Handler] = MappingProxyType(
    {
        "nodes.metrics.k8s.io": metrics.read_nodes,
        "pods.metrics.k8s.io": metrics.read_pods,
    }
)


__all__ = ["Handler", "handler_of", "has_subresource"]

# Verbs and handlers of a collection, of one object, and of the subresources of any kind.
_COLLECTION: Mapping[str, tuple[str, Handler]] = MappingProxyType(
    {
        "POST": ("create", create.create),
        "DELETE": ("deletecollection", delete.delete_many),
    }
)
_OBJECT: Mapping[str, tuple[str, Handler]] = MappingProxyType(
    {
        "GET": ("get", get_list.get),
        "PUT": ("update", update.replace),
        "PATCH": ("patch", patch.patch),
        "DELETE": ("delete", delete.delete),
    }
)
_STATUS: Mapping[str, Handler] = MappingProxyType(
    {"GET": get_list.get, "PUT": update.replace, "PATCH": patch.patch}
)
_SCALE: Mapping[str, Handler] = MappingProxyType(
    {
        "GET": subresources.get_scale,
        "PUT": subresources.replace_scale,
        "PATCH": subresources.patch_scale,
    }
)


def handler_of(method: str, target: Target) -> Handler:
    """Return the handler of a method; raise a 404 for an unknown subresource and a 405 for an unsupported method."""
    method = "GET" if method == "HEAD" else method
    if target.subresource:
        handler = _subresource(target).get(method)
    elif target.resource.is_computed:
        handler = COMPUTED[target.resource.qualified] if method == "GET" else None
    elif target.resource.is_virtual:
        handler = _virtual(method, target)
    else:
        verb, handler = (_OBJECT if target.name else _COLLECTION).get(method, ("", None))
        if handler is not None and not _allows(target, verb):
            handler = None
    if handler is None:
        raise _refusal(method, target)
    return handler


def has_subresource(target: Target) -> bool:
    """Return whether the target's subresource exists."""
    try:
        _subresource(target)
    except ApiError:
        return False
    return True


def _refusal(method: str, target: Target) -> ApiError:
    if not target.resource.is_custom or method not in VERBS:
        return status.method_not_allowed()
    return status.verb_not_supported(target.resource.details(), VERBS[method])


def _virtual(method: str, target: Target) -> Handler | None:
    if target.name:
        raise status.no_such_path()
    return VIRTUAL[target.resource.qualified] if method == "POST" else None


def _allows(target: Target, verb: str) -> bool:
    across_namespaces = target.resource.namespaced and not target.namespace
    return verb in target.resource.verbs and not across_namespaces


def _subresource(target: Target) -> Mapping[str, Handler]:
    if target.subresource == "status" and target.resource.has_status:
        return _STATUS
    if target.subresource == "scale" and target.resource.scale is not None:
        return _SCALE
    extra = SUBRESOURCES.get((target.resource.qualified, target.subresource))
    if extra is not None:
        return extra.methods
    raise status.no_such_path()
