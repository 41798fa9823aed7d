"""What an agent may change in an object: pure comparisons of the old and the new state.

Each function returns why a write must not happen, or None. Bodies are plain JSON as clients sent them, so a part may have
any shape; what is not understood is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.api.names import finalizers, groups

Json = Mapping[str, Any]

# In a Pod's metadata an agent changes its finalizer and nothing else; the server itself writes the rest of it.
_METADATA_OF_OTHERS = ("labels", "annotations", "ownerReferences")
# By these an object stays, or keeps its namespace or its owner from going.
_HOLDING = ("finalizers", "ownerReferences")
# Core events and those of events.k8s.io name their subject differently.
_SUBJECTS = ("involvedObject", "regarding")
_NODE_EVENTS_NAMESPACE = "default"


def named(node: str, new: Json | None) -> str | None:
    """Check that an object bears the Node's name."""
    return None if _metadata(new).get("name") == node else f"only the one named {node!r} is its own"


def pod(node: str, new: Json | None, old: Json | None) -> str | None:
    """Check a change or deletion of a Pod: it is bound to the Node, and only finalizer and status change."""
    if old is None or _part(old, "spec").get("nodeName") != node:
        return "the pod is not bound to its node"
    if new is None:
        return None
    if _part(new, "spec") != _part(old, "spec"):
        return "an agent does not change the spec of a pod"
    before, after = _metadata(old), _metadata(new)
    for field in _METADATA_OF_OTHERS:
        if (after.get(field) or None) != (before.get(field) or None):
            return f"an agent does not change the {field} of a pod"
    if _foreign_finalizers(after) != _foreign_finalizers(before):
        return "an agent changes no finalizer but its own"
    return None


def event(
    node: str,
    namespace: str,
    new: Json | None,
    old: Json | None,
    *,
    is_own_pod: Callable[[str, str], bool],
) -> str | None:
    """Check an event: it is about the Node, its Lease or a Pod on it, and stays so."""
    subject = _subject(new)
    if old is not None and _subject(old) != subject:
        return "an event does not change what it is about"
    before, after = _metadata(old), _metadata(new)
    if any((after.get(field) or None) != (before.get(field) or None) for field in _HOLDING):
        return "an agent's event holds nothing back"
    about = (subject.get("kind"), subject.get("name"))
    if about == ("Node", node) and namespace == _NODE_EVENTS_NAMESPACE:
        return None
    if (
        about == ("Lease", node)
        and subject.get("namespace") == namespace == groups.NODE_LEASE_NAMESPACE
    ):
        return None
    kind, name = about
    if kind == "Pod" and isinstance(name, str) and subject.get("namespace") == namespace:
        return None if is_own_pod(namespace, name) else "the event's pod is not bound to its node"
    return "an agent tells of its own node, lease and pods only"


def own_token(node: str, new: Json | None) -> str | None:
    """Check the renewal of the agent's own token: it is bound to the Node."""
    bound = _bound(new)
    if (bound.get("apiVersion"), bound.get("kind"), bound.get("name")) == ("v1", "Node", node):
        return None
    return "an agent renews its token bound to its own node only"


def pod_token(new: Json | None, *, is_own_pod: Callable[[str], bool]) -> str | None:
    """Check a token for a Pod's ServiceAccount: it is bound to such a Pod, on the Node."""
    bound = _bound(new)
    name = bound.get("name")
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("uid"):
        return "an agent mints tokens bound to a pod and its uid only"
    if not isinstance(name, str) or not is_own_pod(name):
        return "the token's pod is not bound to its node"
    return None


def _foreign_finalizers(metadata: Json) -> list[Any]:
    found = metadata.get("finalizers")
    return [one for one in found or () if one != finalizers.VM_CLEANUP]


def _subject(body: Json | None) -> Json:
    """Return what an event is about, in the words of its API group; one that says both says nothing."""
    found = [_part(body or {}, field) for field in _SUBJECTS if field in (body or {})]
    return found[0] if len(found) == 1 else {}


def _bound(body: Json | None) -> Json:
    return _part(_part(body or {}, "spec"), "boundObjectRef")


def _metadata(body: Json | None) -> Json:
    return _part(body or {}, "metadata")


def _part(value: Json, field: str) -> Json:
    found = value.get(field)
    return found if isinstance(found, Mapping) else {}
