"""The handlers of methods, subresources and kinds that are not stored; discovery lists the same tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

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

VERBS: Mapping[str, str] = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class Subresource(msgspec.Struct, frozen=True):
    """A subresource of a built-in kind; group, version and kind are those of its bodies."""

    name: str
    kind: str
    methods: Mapping[str, Handler]
    group: str = ""
    version: str = "v1"

    @property
    def verbs(self) -> list[str]:
        """Return the verbs of its methods, sorted as discovery shows them."""
        return sorted(VERBS[method] for method in self.methods)


_POD_FIELDS: Mapping[str, Handler] = {
    "GET": get_list.get,
    "PUT": subresources.replace_pod_subresource,
    "PATCH": subresources.patch_pod_subresource,
}
_PROXY: Mapping[str, Handler] = dict.fromkeys(VERBS, node_agents.proxy)
_EXEC: Mapping[str, Handler] = dict.fromkeys(("GET", "POST"), node_agents.exec_or_attach)
_PORT_FORWARD: Mapping[str, Handler] = dict.fromkeys(("GET", "POST"), node_agents.port_forward)

_SUBRESOURCES = {
    "namespaces": [Subresource("finalize", "Namespace", {"PUT": subresources.finalize_namespace})],
    "nodes": [Subresource("proxy", "NodeProxyOptions", _PROXY)],
    "pods": [
        Subresource("attach", "PodAttachOptions", _EXEC),
        Subresource("binding", "Binding", {"POST": subresources.create_binding}),
        Subresource("ephemeralcontainers", "Pod", _POD_FIELDS),
        Subresource("eviction", "Eviction", {"POST": eviction.create_eviction}, "policy"),
        Subresource("exec", "PodExecOptions", _EXEC),
        Subresource("log", "Pod", {"GET": node_agents.pod_log}),
        Subresource("portforward", "PodPortForwardOptions", _PORT_FORWARD),
        Subresource("proxy", "PodProxyOptions", _PROXY),
        Subresource("resize", "Pod", _POD_FIELDS),
    ],
    "serviceaccounts": [
        Subresource(
            "token", "TokenRequest", {"POST": token_requests.create}, "authentication.k8s.io"
        )
    ],
    "services": [Subresource("proxy", "ServiceProxyOptions", _PROXY)],
}
# By the qualified name of the resource (`pods`, `deployments.apps`) and the subresource; status and scale are fields of a resource.
SUBRESOURCES: Mapping[tuple[str, str], Subresource] = {
    (qualified, each.name): each for qualified, group in _SUBRESOURCES.items() for each in group
}

# Handlers of POST by the qualified name of a kind that is not stored; its ServedResource has `is_virtual`.
VIRTUAL: Mapping[str, Handler] = {
    "bindings": subresources.create_binding,
    "localsubjectaccessreviews.authorization.k8s.io": reviews.review_local,
    "selfsubjectaccessreviews.authorization.k8s.io": reviews.review_self,
    "selfsubjectreviews.authentication.k8s.io": reviews.review_caller,
    "selfsubjectrulesreviews.authorization.k8s.io": reviews.review_rules,
    "subjectaccessreviews.authorization.k8s.io": reviews.review_subject,
    "tokenreviews.authentication.k8s.io": reviews.review_token,
}

# Handlers of GET by the qualified name of a kind that is computed when it is read; its ServedResource has `is_computed`.
COMPUTED: Mapping[str, Handler] = {
    "nodes.metrics.k8s.io": metrics.read_nodes,
    "pods.metrics.k8s.io": metrics.read_pods,
}


# Verbs and handlers of a collection, of one object, and of the subresources of any kind.
_COLLECTION: Mapping[str, tuple[str, Handler]] = {
    "POST": ("create", create.create),
    "DELETE": ("deletecollection", delete.delete_collection),
}
_OBJECT: Mapping[str, tuple[str, Handler]] = {
    "GET": ("get", get_list.get),
    "PUT": ("update", update.replace),
    "PATCH": ("patch", patch.patch),
    "DELETE": ("delete", delete.delete),
}
_STATUS: Mapping[str, Handler] = {"GET": get_list.get, "PUT": update.replace, "PATCH": patch.patch}
_SCALE: Mapping[str, Handler] = {
    "GET": subresources.get_scale,
    "PUT": subresources.replace_scale,
    "PATCH": subresources.patch_scale,
}


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
