"""The names of crash points: one for each kind of tart command and each kind of write to the API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bramley.api.names import access, agent, finalizers

READS = frozenset({"GET", "HEAD"})


def call(words: Sequence[str]) -> str:
    """Return the name of a tart command; those on base VMs have names of their own."""
    verb, *rest = words or ["help"]
    is_golden = any(word.startswith(agent.GOLDEN_VM_PREFIX) for word in rest[-1:])
    return f"tart {verb} of a base" if is_golden else f"tart {verb}"


def write(method: str, path: str, body: bytes) -> str | None:
    """Return the name of a request; None if it writes nothing."""
    if method in READS:
        return None
    words = path.strip("/").split("/")
    # /api/v1/… or /apis/group/v1/…, then perhaps a namespace.
    words = words[2 if words[0] == "api" else 3 :]
    namespace = words[1] if words[0] == "namespaces" and len(words) > 2 else ""
    words = words[2:] if namespace else words
    kind = "/".join([words[0], *words[2:]])
    detail = _DETAILS.get(kind, _nothing)(_decoded(body), namespace)
    return f"{method} {kind} {detail}".strip()


def _decoded(body: bytes) -> Mapping[str, Any]:
    return dict(json.loads(body)) if body else {}


def _nothing(_body: Mapping[str, Any], _namespace: str) -> str:
    return ""


def _event(body: Mapping[str, Any], _namespace: str) -> str:
    return str(body.get("reason", "again"))


def _pod(body: Mapping[str, Any], _namespace: str) -> str:
    kept = body.get("metadata", {}).get("finalizers")
    if kept is None:
        return ""
    return "hold" if finalizers.VM_CLEANUP in kept else "release"


def _status(body: Mapping[str, Any], _namespace: str) -> str:
    status = body.get("status", {})
    container = (status.get("containerStatuses") or [{}])[0].get("state", {})
    reason = container.get("waiting", {}).get("reason", "")
    address = "with an address" if status.get("podIP") else ""
    return " ".join(word for word in (status.get("phase", ""), reason, address) if word)


def _token(_body: Mapping[str, Any], namespace: str) -> str:
    return "of the agent" if namespace == access.NAMESPACE else "of the guest"


_DETAILS = {"events": _event, "pods": _pod, "pods/status": _status, "serviceaccounts/token": _token}
