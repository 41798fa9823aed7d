"""What an agent may change in an object: pure comparisons of the old and the new state.

Each function returns why a write is refused, or None. Bodies are plain JSON as clients sent them, so a part may have any
shape; what is invalid is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.api.names import finalizers, groups

Json = Mapping[str, Any]

# In a Pod's metadata an agent may change only its finalizer; the server writes the rest.
_PROTECTED_METADATA = ("labels", "annotations", "ownerReferences")
# These can block the deletion of the object, its namespace or its owner.
_BLOCKS_DELETION = ("finalizers", "ownerReferences")
# Core events and those of events.k8s.io have different fields for the involved object.
_INVOLVED_OBJECT_FIELDS = ("involvedObject", "regarding")
_NODE_EVENTS_NAMESPACE = "default"


def check_name(node: str, new: Json | None) -> str | None:
    """Check that an object has the Node's name."""
    is_own = _metadata(new).get("name") == node
    return None if is_own else f"an agent may access only the object named {node!r}"


def check_pod(node: str, new: Json | None, old: Json | None) -> str | None:
    """Check a change or deletion of a Pod: it is bound to the Node, and only finalizer and status change."""
    if old is None or _mapping(old, "spec").get("nodeName") != node:
        return "the pod is not bound to the agent's node"
    if new is None:
        return None
    if _mapping(new, "spec") != _mapping(old, "spec"):
        return "an agent may not change the spec of a pod"
    before, after = _metadata(old), _metadata(new)
    for field in _PROTECTED_METADATA:
        if (after.get(field) or None) != (before.get(field) or None):
            return f"an agent may not change the {field} of a pod"
    if _foreign_finalizers(after) != _foreign_finalizers(before):
        return "an agent may change only its own finalizer"
    return None


def check_event(
    node: str,
    namespace: str,
    new: Json | None,
    old: Json | None,
    *,
    is_own_pod: Callable[[str, str], bool],
) -> str | None:
    """Check an event: it is about the Node, its Lease or a Pod on it, and stays so."""
    involved = _involved_object(new)
    # Otherwise an agent could rewrite events about objects of other Nodes.
    if old is not None and _involved_object(old) != involved:
        return "the involved object of an event may not change"
    before, after = _metadata(old), _metadata(new)
    if any((after.get(field) or None) != (before.get(field) or None) for field in _BLOCKS_DELETION):
        return "an agent's event may not have finalizers or owners"
    subject = (involved.get("kind"), involved.get("name"))
    if subject == ("Node", node) and namespace == _NODE_EVENTS_NAMESPACE:
        return None
    if (
        subject == ("Lease", node)
        and involved.get("namespace") == namespace == groups.NODE_LEASE_NAMESPACE
    ):
        return None
    kind, name = subject
    if kind == "Pod" and isinstance(name, str) and involved.get("namespace") == namespace:
        is_own = is_own_pod(namespace, name)
        return None if is_own else "the event's pod is not bound to the agent's node"
    return "an agent may record events only about its own node, lease and pods"


def check_own_token(node: str, new: Json | None) -> str | None:
    """Check the renewal of the agent's own token: it is bound to no object but its ServiceAccount, or to the Node."""
    bound = _bound_object(new)
    to_node = ("v1", "Node", node)
    if not bound or (bound.get("apiVersion"), bound.get("kind"), bound.get("name")) == to_node:
        return None
    return "an agent may bind its own token only to its own node"


def check_pod_token(new: Json | None, *, is_own_pod: Callable[[str], bool]) -> str | None:
    """Check a token for a Pod's ServiceAccount: it is bound to such a Pod, on the Node."""
    bound = _bound_object(new)
    name = bound.get("name")
    # With the uid the token ends with this Pod, even if another one gets its name.
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("uid"):
        return "an agent may request tokens only bound to a pod and its uid"
    if not isinstance(name, str) or not is_own_pod(name):
        return "the token's pod is not bound to the agent's node"
    return None


def _foreign_finalizers(metadata: Json) -> list[Any]:
    names = metadata.get("finalizers")
    return [name for name in names or () if name != finalizers.VM_CLEANUP]


def _involved_object(body: Json | None) -> Json:
    """Return the involved object of an event; empty when the fields of both API groups are set."""
    body = body or {}
    involved = [_mapping(body, field) for field in _INVOLVED_OBJECT_FIELDS if field in body]
    return involved[0] if len(involved) == 1 else {}


def _bound_object(body: Json | None) -> Json:
    return _mapping(_mapping(body or {}, "spec"), "boundObjectRef")


def _metadata(body: Json | None) -> Json:
    return _mapping(body or {}, "metadata")


def _mapping(value: Json, field: str) -> Json:
    member = value.get(field)
    return member if isinstance(member, Mapping) else {}
