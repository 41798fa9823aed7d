"""The kubeconfig of an agent: server, authority and token in one secret text."""

from __future__ import annotations

import base64

import msgspec

from bramley.api.names import agent
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.config import ClientConfig, checked_url
from bramley.kube.tls import Trust


def render(node: str, token: Secret, *, server: str, trust: Trust) -> Secret:
    """Return the file's content; without an authority the system's are trusted."""
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
    # JSON is YAML, and escapes every value.
    return Secret(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")


def server_for_agent(config: ClientConfig, server: str | None) -> str:
    """Return the server URL for the agent: the given one, or the administrator's own."""
    if not config.trust.verify:
        raise errors.BadConfiguration(
            "the kubeconfig trusts any server (insecure-skip-tls-verify); use one with a certificate authority"
        )
    return checked_url(server, "--server") if server else config.server


class _Document(msgspec.Struct, rename="kebab"):
    current_context: str = ""


def is_agent_kubeconfig(content: bytes) -> bool:
    """Return whether a file was written by `render`, so that it may be replaced."""
    try:
        return msgspec.json.decode(content, type=_Document).current_context == agent.NAME
    except msgspec.MsgspecError:
        return False
