"""The URL of the API server that agents connect to, and the client authority that they trust."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bramley.access import kubeconfig
from bramley.api.core import ConfigMap
from bramley.app.listen_address import is_loopback
from bramley.base import errors
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig, checked_url

FLAG = "--api-server-url"
_NAMESPACE, _NAME, _KEY = "kube-public", "cluster-info", "kubeconfig"
_DEADLINE = timedelta(seconds=10)


async def find(kube: Client, config: ClientConfig, explicit: str) -> str:
    """Return the explicit URL, else that of `kube-public/cluster-info`, else the kubeconfig's if Macs can reach it."""
    if explicit:
        # Also refuses a kubeconfig that trusts any server.
        return kubeconfig.server_for_agent(config, checked_url(explicit, FLAG))
    own = kubeconfig.server_for_agent(config, None)
    published = await _published(kube)
    if published:
        return published
    if _is_internal(config):
        raise errors.BadConfiguration(
            f"Macs cannot reach {own}, and the ConfigMap {_NAMESPACE}/{_NAME} names no server; give its URL with {FLAG}"
        )
    return own


async def _published(kube: Client) -> str:
    """Return the server that kubeadm publishes; empty if there is none."""
    try:
        found = await kube.within(_DEADLINE).get(ConfigMap, _NAME, namespace=_NAMESPACE)
    except (errors.NotFound, errors.Forbidden, errors.Unavailable):
        return ""
    place = f"{_KEY} of the ConfigMap {_NAMESPACE}/{_NAME}"
    server = _server_in(found.data.get(_KEY, ""))
    return checked_url(server, place) if server else ""


def _server_in(text: str) -> str:
    try:
        document: Any = yaml.safe_load(text)
        server = document["clusters"][0]["cluster"]["server"]
    except (yaml.YAMLError, LookupError, TypeError):
        return ""
    return server if isinstance(server, str) else ""


def _is_internal(config: ClientConfig) -> bool:
    """Return whether a server is one of this computer, or the Service inside the cluster of this Pod."""
    if Path(config.trust.source).is_relative_to(config_loader.POD_FILES):
        return True
    return is_loopback(urlsplit(config.server).hostname or "")


def client_authority(path: Path | None, config: ClientConfig) -> bytes:
    """Return the CA certificates (PEM) of clients that may read from agents: those of the file, else the cluster's."""
    if path is None:
        return (config.trust.authorities or "").encode()
    flag = "--kubelet-client-ca-file"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise errors.BadConfiguration(f"{flag}: {error.strerror} ({path})") from error
    if b"-----BEGIN CERTIFICATE-----" not in content or b"PRIVATE KEY" in content:
        raise errors.BadConfiguration(
            f"{flag}: {path} must contain certificates in PEM format, and no private key"
        )
    return content
