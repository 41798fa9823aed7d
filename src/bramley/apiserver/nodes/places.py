"""Where the agent of a Node listens, as the Node itself says."""

from __future__ import annotations

from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.registry.resources import Json

# What a Mac is called is often known to nobody else, so its addresses come first.
_PREFERRED = ("InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname")
_PORT = 10250


def url(node: Json) -> str:
    """Return the address of a Node's agent; raise a 500 in a real server's words if it tells none."""
    status = node.get("status", {})
    known = [
        (each.get("type", ""), each.get("address", "")) for each in status.get("addresses", [])
    ]
    ranked = sorted(
        (_PREFERRED.index(kind), address) for kind, address in known if kind in _PREFERRED
    )
    if not ranked:
        told = " ".join(f"{{{kind} {address}}}" for kind, address in known)
        raise ApiError(500, "", f"no preferred addresses found; known addresses: [{told}]")
    host = ranked[0][1]
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}:{port if port > 0 else _PORT}"
