"""The agent's rule: whose token this is, what its owner may ask for, and what it may write.

Pure. `judge` looks at the request before the object is touched, like an authorizer; `admit` at the object as it is and as it
would become, like admission. What neither names is refused. `roles` and `policy` say the same to a real cluster, and one
table of requests holds all of them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bramley.access import writes
from bramley.access.references import References
from bramley.api.names import access, agent, groups

Json = Mapping[str, Any]

READ_ONE = frozenset({"get"})
READ = frozenset({"get", "list", "watch"})
CHANGE = frozenset({"update", "patch"})
CREATE = frozenset({"create"})
DELETE = frozenset({"delete"})


class Asked(msgspec.Struct, frozen=True):
    """One request of an agent; `selected_node` is the Node that a field selector on Pods leaves."""

    node: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    selected_node: str = ""


class Ruling(msgspec.Struct, frozen=True):
    """Whether an agent may, and why not."""

    allowed: bool
    reason: str = ""


class PodFacts(msgspec.Struct, frozen=True):
    """What the rule needs to know of one Pod."""

    node: str
    uid: str
    references: References


class World(Protocol):
    """What the rule looks up; every look-up must be cheap, for each request of an agent makes some."""

    def enrolled(self, node: str) -> bool:
        """Tell whether somebody who may give rights made this Node's agent one."""
        ...

    def pod(self, namespace: str, name: str) -> PodFacts | None:
        """Return a Pod, or None when there is none."""
        ...

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Tell whether a Pod on the Node refers to this Secret, ConfigMap or ServiceAccount."""
        ...


def node_of(user_name: str, extra: Mapping[str, Sequence[str]]) -> str | None:
    """Return the Node that a user is the agent of; None for everybody else.

    Empty for an agent whose token was made for another Node: it is an agent still, and of nothing.
    """
    if not user_name.startswith(access.USER_PREFIX):
        return None
    node = user_name.removeprefix(access.USER_PREFIX)
    said = extra.get(access.TOKEN_NODE, ())
    return node if all(one == node for one in said) else ""


def judge(asked: Asked, world: World) -> Ruling:
    """Decide whether an agent may ask this, before the object is looked at."""
    if not asked.node:
        return _refused("its token is of another node")
    if not world.enrolled(asked.node):
        return _refused(f"nobody made it the agent of node {asked.node!r}")
    right = _RIGHTS.get((asked.group, asked.resource, asked.subresource))
    if right is None or asked.verb not in right.verbs:
        return _refused("an agent has no use for this")
    refusal = right.check(asked, world)
    return _refused(refusal) if refusal else Ruling(allowed=True)


def admit(asked: Asked, new: Json | None, old: Json | None, world: World) -> str | None:
    """Return why an agent's write must not happen, or None; `new` is None for a deletion, `old` for a creation."""
    right = _RIGHTS.get((asked.group, asked.resource, asked.subresource))
    if not asked.node or right is None or asked.verb not in right.verbs:
        return "an agent has no use for this"
    return right.admit(asked, new, old, world) if right.admit else None


Check = Callable[[Asked, World], str | None]
Admit = Callable[[Asked, "Json | None", "Json | None", World], str | None]


class _Right(msgspec.Struct, frozen=True):
    verbs: frozenset[str]
    check: Check
    admit: Admit | None = None


def _refused(reason: str) -> Ruling:
    return Ruling(allowed=False, reason=f"the agent's rule: {reason}")


def _free(_asked: Asked, _world: World) -> str | None:
    return None


def _own_name(asked: Asked, _world: World) -> str | None:
    # The name of what is created stands in the body, so `admit` looks at it.
    if asked.name == asked.node or asked.verb == "create":
        return None
    return f"only {asked.resource} {asked.node!r} is its own"


def _own_lease(asked: Asked, world: World) -> str | None:
    if asked.namespace != groups.NODE_LEASE_NAMESPACE:
        return f"only a lease in {groups.NODE_LEASE_NAMESPACE} is its own"
    return _own_name(asked, world)


def _own_pod(asked: Asked, world: World) -> str | None:
    if asked.verb in {"list", "watch"}:
        told = "it lists pods by spec.nodeName, and its own node only"
        return None if asked.selected_node == asked.node else told
    pod = world.pod(asked.namespace, asked.name)
    # Of a Pod that is gone the agent must hear just that, or it would wait for it for ever.
    return None if pod is None or pod.node == asked.node else "the pod is not bound to its node"


def _used(asked: Asked, world: World) -> str | None:
    if asked.name and world.uses(asked.node, asked.resource, asked.namespace, asked.name):
        return None
    if not asked.name:
        return f"it reads {asked.resource} by name"
    return "no pod on its node refers to it"


def _own_account(asked: Asked, world: World) -> str | None:
    if asked.namespace != access.NAMESPACE:
        return _used(asked, world)
    # Also when a Pod there runs as another agent: nobody becomes that agent by it.
    own = agent.service_account(asked.node)
    return None if asked.name == own else "this is another agent's identity"


def _admit_named(asked: Asked, new: Json | None, _old: Json | None, _world: World) -> str | None:
    return writes.named(asked.node, new)


def _admit_pod(asked: Asked, new: Json | None, old: Json | None, _world: World) -> str | None:
    return writes.pod(asked.node, new, old)


def _admit_event(asked: Asked, new: Json | None, old: Json | None, world: World) -> str | None:
    def is_own(namespace: str, name: str) -> bool:
        pod = world.pod(namespace, name)
        return pod is not None and pod.node == asked.node

    return writes.event(asked.node, asked.namespace, new, old, is_own_pod=is_own)


def _admit_token(asked: Asked, new: Json | None, _old: Json | None, world: World) -> str | None:
    if asked.namespace == access.NAMESPACE:
        return writes.own_token(asked.node, new)

    def is_own(name: str) -> bool:
        pod = world.pod(asked.namespace, name)
        return pod is not None and pod.node == asked.node

    return writes.pod_token(new, is_own_pod=is_own)


_EVENTS = _Right(CREATE | CHANGE, _free, _admit_event)
_REVIEWS = _Right(CREATE, _free)

_RIGHTS: Mapping[tuple[str, str, str], _Right] = {
    ("", "nodes", ""): _Right(READ | CREATE | CHANGE, _own_name, _admit_named),
    ("", "nodes", "status"): _Right(READ_ONE | CHANGE, _own_name, _admit_named),
    ("coordination.k8s.io", "leases", ""): _Right(
        READ_ONE | CREATE | CHANGE, _own_lease, _admit_named
    ),
    ("", "pods", ""): _Right(READ | CHANGE | DELETE, _own_pod, _admit_pod),
    ("", "pods", "status"): _Right(READ_ONE | CHANGE, _own_pod, _admit_pod),
    ("", "events", ""): _EVENTS,
    ("events.k8s.io", "events", ""): _EVENTS,
    ("", "secrets", ""): _Right(READ, _used),
    ("", "configmaps", ""): _Right(READ, _used),
    ("", "serviceaccounts", "token"): _Right(CREATE, _own_account, _admit_token),
    ("authentication.k8s.io", "tokenreviews", ""): _REVIEWS,
    ("authorization.k8s.io", "subjectaccessreviews", ""): _REVIEWS,
    # What everybody may ask about themselves.
    ("authentication.k8s.io", "selfsubjectreviews", ""): _REVIEWS,
    ("authorization.k8s.io", "selfsubjectaccessreviews", ""): _REVIEWS,
    ("authorization.k8s.io", "selfsubjectrulesreviews", ""): _REVIEWS,
}
