"""Authorization of agents on the embedded API, as kube-apiserver's node authorizer and NodeRestriction are for kubelets.

For an agent the rule alone decides, whatever other roles it has; only the binding that enrolls it must exist. The rule is
loaded at the first request of a ServiceAccount: a server starts without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bramley.apiserver.apimachinery import users
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authorizer import Decision, refusal
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.store.store import Store

if TYPE_CHECKING:
    from bramley.access.authorization import AgentRequest
    from bramley.apiserver.auth.node_graph import NodeGraph

AgentGuard = Callable[[Json | None, Json | None], None]
"""Checks an object's new and old state before it is stored; raises a 403."""


class NodeAuthorizer:
    """The rule, for the authorizer and for the write path."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._node_graph: NodeGraph | None = None

    def authorize(self, attributes: Attributes) -> Decision | None:
        """Return the decision on an agent's request for a resource, None for everything else."""
        request = _rule_request(attributes)
        if request is None or not attributes.resource:
            return None
        from bramley.access import authorization

        ruling = authorization.authorize(request, self._graph())
        return Decision(allowed=ruling.allowed, reason=ruling.reason, denied=not ruling.allowed)

    def guard_for(self, attributes: Attributes) -> AgentGuard | None:
        """Return the check of each object that an agent writes, None for other callers."""
        request = _rule_request(attributes)
        if request is None:
            return None
        from bramley.access import authorization

        graph = self._graph()

        def guard(new: Json | None, old: Json | None) -> None:
            reason = authorization.admit(
                request, None if request.verb == "delete" else new, old, graph
            )
            if reason is not None:
                raise refusal(attributes, f"agent authorization: {reason}")

        return guard

    def _graph(self) -> NodeGraph:
        if self._node_graph is None:
            from bramley.apiserver.auth.node_graph import NodeGraph

            self._node_graph = NodeGraph(self._store)
        return self._node_graph


def _rule_request(attributes: Attributes) -> AgentRequest | None:
    """Return the request in the rule's terms, None if no agent sent it."""
    user = attributes.user
    if not user.name.startswith(users.ACCOUNT_PREFIX):
        return None
    from bramley.access import authorization

    node = authorization.node_of(user.name, user.extra)
    if node is None:
        return None
    return authorization.AgentRequest(
        node=node,
        verb=attributes.verb,
        group=attributes.group,
        resource=attributes.resource,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
        selected_node=attributes.selected_node,
    )
