"""The kubeconfig that an agent starts with: server, authority and token in one text that must be kept secret."""

from __future__ import annotations

import base64

import msgspec

from bramley.api.names import agent
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.config import ClientConfig, checked_url
from bramley.kube.tls import Trust


def render(node: str, token: Secret, *, server: str, trust: Trust) -> Secret:
    """Return the file's content; without an authority the system's own are trusted."""
    user = agent.service_account(node)
    cluster = {"server": server}
    if trust.authorities:
        authorities = base64.b64encode(trust.authorities.encode())
        cluster["certificate-authority-data"] = authorities.decode()
    if trust.server_name:
        cluster["tls-server-name"] = trust.server_name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": agent.NAME,
        "clusters": [{"name": agent.NAME, "cluster": cluster}],
        "contexts": [{"name": agent.NAME, "context": {"cluster": agent.NAME, "user": user}}],
        "users": [{"name": user, "user": {"token": token.reveal()}}],
    }
    # JSON is YAML, and no value can break out of its place.
    return Secret(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")


def reachable(access: ClientConfig, server: str | None) -> str:
    """Return the address that the agent shall use: the one given, or the administrator's own."""
    if not access.trust.verify:
        raise errors.BadConfiguration(
            "the kubeconfig trusts any server (insecure-skip-tls-verify); an agent must know its server's authority"
        )
    return checked_url(server, "--server") if server else access.server


class _Document(msgspec.Struct, rename="kebab"):
    current_context: str = ""


def is_ours(content: bytes) -> bool:
    """Tell whether a file is as `render` writes them, so that replacing it loses nothing of somebody else's."""
    try:
        return msgspec.json.decode(content, type=_Document).current_context == agent.NAME
    except msgspec.MsgspecError:
        return False
