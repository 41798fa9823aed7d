"""Authorization of agents, as kube-apiserver's node authorizer and NodeRestriction do it for kubelets.

Pure. `authorize` checks the request before the object is read; `admit` checks the old and the new state of a written object.
What neither allows is refused. `roles` and `policy` express the same for a real cluster, and one table of requests tests all
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bramley.access import node_restriction
from bramley.access.pod_references import References
from bramley.api.names import access, agent, groups

Json = Mapping[str, Any]

READ_ONE = frozenset({"get"})
READ = frozenset({"get", "list", "watch"})
CHANGE = frozenset({"update", "patch"})
CREATE = frozenset({"create"})
DELETE = frozenset({"delete"})


class AgentRequest(msgspec.Struct, frozen=True):
    """One request of an agent; `selected_node` is the Node that a field selector on Pods selects."""

    node: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    selected_node: str = ""


class Decision(msgspec.Struct, frozen=True):
    """Whether a request is allowed, and why not."""

    allowed: bool
    reason: str = ""


class PodFacts(msgspec.Struct, frozen=True):
    """The Node, uid and references of one Pod."""

    node: str
    uid: str
    references: References


class Graph(Protocol):
    """Looks up Pods and what they refer to; every lookup must be cheap, for each request of an agent makes some."""

    def is_enrolled(self, node: str) -> bool:
        """Return whether the Node's agent was enrolled by a user who may grant permissions."""
        ...

    def pod(self, namespace: str, name: str) -> PodFacts | None:
        """Return a Pod, or None when it does not exist."""
        ...

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether a Pod on the Node refers to this Secret, ConfigMap or ServiceAccount."""
        ...


def node_of(user_name: str, extra: Mapping[str, Sequence[str]]) -> str | None:
    """Return the Node that a user is the agent of; None for other users.

    Empty for an agent whose token is bound to another Node: it is still an agent, but without permissions.
    """
    if not user_name.startswith(access.USER_PREFIX):
        return None
    node = user_name.removeprefix(access.USER_PREFIX)
    nodes = extra.get(access.TOKEN_NODE, ())
    return node if all(each == node for each in nodes) else ""


def authorize(request: AgentRequest, graph: Graph) -> Decision:
    """Decide whether an agent may make this request, before the object is read."""
    if not request.node:
        return _refused("the agent's token is bound to another node")
    if not graph.is_enrolled(request.node):
        return _refused(f"the user is not enrolled as the agent of node {request.node!r}")
    permission = _PERMISSIONS.get((request.group, request.resource, request.subresource))
    if permission is None or request.verb not in permission.verbs:
        return _refused("agents may not make this request")
    refusal = permission.check(request, graph)
    return _refused(refusal) if refusal else Decision(allowed=True)


def admit(request: AgentRequest, new: Json | None, old: Json | None, graph: Graph) -> str | None:
    """Return why an agent's write must not happen, or None; `new` is None for a deletion, `old` for a creation."""
    permission = _PERMISSIONS.get((request.group, request.resource, request.subresource))
    if not request.node or permission is None or request.verb not in permission.verbs:
        return "agents may not make this request"
    return permission.admit(request, new, old, graph) if permission.admit else None


Check = Callable[[AgentRequest, Graph], str | None]
Admit = Callable[[AgentRequest, "Json | None", "Json | None", Graph], str | None]


class _Permission(msgspec.Struct, frozen=True):
    verbs: frozenset[str]
    check: Check
    admit: Admit | None = None


def _refused(reason: str) -> Decision:
    return Decision(allowed=False, reason=f"agent authorization: {reason}")


def _allow(_request: AgentRequest, _graph: Graph) -> str | None:
    return None


def _check_own_name(request: AgentRequest, _graph: Graph) -> str | None:
    # The name of what is created is in the body, so `admit` checks it.
    if request.name == request.node or request.verb == "create":
        return None
    return f"an agent may access only {request.resource}/{request.node}"


def _check_own_lease(request: AgentRequest, graph: Graph) -> str | None:
    if request.namespace != groups.NODE_LEASE_NAMESPACE:
        return f"an agent may access only a lease in {groups.NODE_LEASE_NAMESPACE}"
    return _check_own_name(request, graph)


def _check_own_pod(request: AgentRequest, graph: Graph) -> str | None:
    if request.verb in {"list", "watch"}:
        message = "an agent may list pods only with a field selector spec.nodeName=<its own node>"
        return None if request.selected_node == request.node else message
    pod = graph.pod(request.namespace, request.name)
    # A Pod that is gone must lead to 404 and not 403, or the agent would wait for it forever.
    is_own = pod is None or pod.node == request.node
    return None if is_own else "the pod is not bound to the agent's node"


def _check_used(request: AgentRequest, graph: Graph) -> str | None:
    if request.name and graph.uses(request.node, request.resource, request.namespace, request.name):
        return None
    if not request.name:
        return f"an agent may read {request.resource} only by name"
    return "no pod on the agent's node refers to it"


def _check_own_account(request: AgentRequest, graph: Graph) -> str | None:
    if request.namespace != access.NAMESPACE:
        return _check_used(request, graph)
    # Also when a Pod there runs as another agent: that must not give access to its identity.
    own = agent.service_account(request.node)
    return None if request.name == own else "this is another agent's identity"


def _admit_name(
    request: AgentRequest, new: Json | None, _old: Json | None, _graph: Graph
) -> str | None:
    return node_restriction.check_name(request.node, new)


def _admit_pod(
    request: AgentRequest, new: Json | None, old: Json | None, _graph: Graph
) -> str | None:
    return node_restriction.check_pod(request.node, new, old)


def _admit_event(
    request: AgentRequest, new: Json | None, old: Json | None, graph: Graph
) -> str | None:
    def is_own(namespace: str, name: str) -> bool:
        pod = graph.pod(namespace, name)
        return pod is not None and pod.node == request.node

    return node_restriction.check_event(
        request.node, request.namespace, new, old, is_own_pod=is_own
    )


def _admit_token(
    request: AgentRequest, new: Json | None, _old: Json | None, graph: Graph
) -> str | None:
    if request.namespace == access.NAMESPACE:
        return node_restriction.check_own_token(request.node, new)

    def is_own(name: str) -> bool:
        pod = graph.pod(request.namespace, name)
        return pod is not None and pod.node == request.node

    return node_restriction.check_pod_token(new, is_own_pod=is_own)


_EVENTS = _Permission(CREATE | CHANGE, _allow, _admit_event)
_REVIEWS = _Permission(CREATE, _allow)

_PERMISSIONS: Mapping[tuple[str, str, str], _Permission] = {
    ("", "nodes", ""): _Permission(READ | CREATE | CHANGE, _check_own_name, _admit_name),
    ("", "nodes", "status"): _Permission(READ_ONE | CHANGE, _check_own_name, _admit_name),
    ("coordination.k8s.io", "leases", ""): _Permission(
        READ_ONE | CREATE | CHANGE, _check_own_lease, _admit_name
    ),
    ("", "pods", ""): _Permission(READ | CHANGE | DELETE, _check_own_pod, _admit_pod),
    ("", "pods", "status"): _Permission(READ_ONE | CHANGE, _check_own_pod, _admit_pod),
    ("", "events", ""): _EVENTS,
    ("events.k8s.io", "events", ""): _EVENTS,
    ("", "secrets", ""): _Permission(READ, _check_used),
    ("", "configmaps", ""): _Permission(READ, _check_used),
    ("", "serviceaccounts", "token"): _Permission(CREATE, _check_own_account, _admit_token),
    ("authentication.k8s.io", "tokenreviews", ""): _REVIEWS,
    ("authorization.k8s.io", "subjectaccessreviews", ""): _REVIEWS,
    # Every user may review itself.
    ("authentication.k8s.io", "selfsubjectreviews", ""): _REVIEWS,
    ("authorization.k8s.io", "selfsubjectaccessreviews", ""): _REVIEWS,
    ("authorization.k8s.io", "selfsubjectrulesreviews", ""): _REVIEWS,
}
