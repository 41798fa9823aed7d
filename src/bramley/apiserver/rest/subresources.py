"""What is served beside plain objects: subresources of built-in kinds, and kinds that are only ever created, or only read.

Three registries, and nothing else decides what exists: routes look handlers up here, and discovery lists what it finds here.
Status and scale are not among them, because a resource says by itself whether it has these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.rest import (
    binding,
    evicting,
    finalizing,
    metrics,
    node_agents,
    pod_parts,
    token_requests,
)
from bramley.apiserver.rest import reviews
from bramley.apiserver.rest import reviews
from bramley.apiserver.rest.server import Server

Handler = Callable[[Server, Request, Target], Awaitable[Response]]

VERBS: Mapping[str, str] = MappingProxyType(
    {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
)


class Subresource(msgspec.Struct, frozen=True):
    """A part of an object with a path of its own; group, version and kind are those of its bodies."""

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


def _part(name: str) -> Subresource:
    methods = {"GET": pod_parts.get, "PUT": pod_parts.put, "PATCH": pod_parts.patch}
    return Subresource(name, "Pod", "", "v1", methods)


def _streamed(name: str, kind: str, handler: Handler) -> Subresource:
    return Subresource(name, kind, "", "v1", {"GET": handler, "POST": handler})


def _proxied(kind: str) -> Subresource:
    return Subresource("proxy", kind, "", "v1", dict.fromkeys(VERBS, node_agents.proxy))


def _token() -> Subresource:
    methods = {"POST": token_requests.create}
    return Subresource("token", "TokenRequest", "authentication.k8s.io", "v1", methods)


# By the qualified name of the resource (`pods`, `deployments.apps`) and that of the subresource.
EXTRA: Mapping[tuple[str, str], Subresource] = _by_path(
    ("namespaces", Subresource("finalize", "Namespace", "", "v1", {"PUT": finalizing.replace})),
    ("nodes", _proxied("NodeProxyOptions")),
    ("pods", _streamed("attach", "PodAttachOptions", node_agents.stream)),
    ("pods", Subresource("binding", "Binding", "", "v1", {"POST": binding.create})),
    ("pods", _part("ephemeralcontainers")),
    ("pods", Subresource("eviction", "Eviction", "policy", "v1", {"POST": evicting.create})),
    ("pods", _streamed("exec", "PodExecOptions", node_agents.stream)),
    ("pods", Subresource("log", "Pod", "", "v1", {"GET": node_agents.log})),
    ("pods", _streamed("portforward", "PodPortForwardOptions", node_agents.forward)),
    ("pods", _proxied("PodProxyOptions")),
    ("pods", _part("resize")),
    ("serviceaccounts", _token()),
    ("services", _proxied("ServiceProxyOptions")),
)

# By the qualified name of a kind that is not stored: what a POST of it does. Its ServedResource says `is_virtual`.
VIRTUAL: Mapping[str, Handler] = MappingProxyType(
    {
        "bindings": binding.create,
        "localsubjectaccessreviews.authorization.k8s.io": reviews.review_local,
        "selfsubjectaccessreviews.authorization.k8s.io": reviews.review_self,
        "selfsubjectreviews.authentication.k8s.io": reviews.review_caller,
        "selfsubjectrulesreviews.authorization.k8s.io": reviews.review_rules,
        "subjectaccessreviews.authorization.k8s.io": reviews.review_subject,
        "tokenreviews.authentication.k8s.io": reviews.review_token,
    }
)

# By the qualified name of a kind that is made when somebody reads it: what a GET does. Its ServedResource says `is_computed`.
COMPUTED: Mapping[str, Handler] = MappingProxyType(
    {
        "nodes.metrics.k8s.io": metrics.read_nodes,
        "pods.metrics.k8s.io": metrics.read_pods,
    }
)
