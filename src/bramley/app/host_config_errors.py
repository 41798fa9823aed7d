"""What is wrong with the file of `bramley host`, in the words of that file: its path, and its own names of the fields.

The specification of a Mac knows its fields by other names, since the file is not its only source.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bramley.base.errors import BadConfiguration, Cause, InvalidSpec

_REFERENCE = "docs/reference/host-config.md"
_NAMES = {
    "node_name": "node",
    "host_cpu": "cpu",
    "host_memory_mb": "memoryMb",
    "max_pods": "maxPods",
    "node_labels": "labels",
    "provider_id": "providerId",
    "public_keys": "publicKeys",
    "cache_network": "egress.cacheNetwork",
    "private_network": "egress.privateNetwork",
    "cluster_dns": "egress.clusterDns",
    "node_ip": "nodeIp",
    "kubelet_bind_address": "listen.kubelet",
    "metrics_bind_address": "listen.metrics",
    "health_bind_address": "listen.health",
}


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Tell what is refused by the names that this file has for it."""
    try:
        yield
    except InvalidSpec as error:
        if not error.causes:
            raise
        causes = tuple(_named(cause) for cause in error.causes)
        told = "; ".join(cause.message for cause in causes)
        raise InvalidSpec(f"{path}: {told}; see {_REFERENCE}", causes=causes) from error
    except BadConfiguration as error:
        if str(path) in str(error):
            raise
        raise BadConfiguration(f"{path}: {error}") from error


@contextmanager
def naming(field: str, path: Path) -> Iterator[None]:
    """Tell which field, or flag, names a file that cannot be read."""
    try:
        yield
    except OSError as error:
        # It is the file's content that may be secret, and never its name.
        raise BadConfiguration(f"{field}: {error.strerror or error} ({path})") from None


def _named(cause: Cause) -> Cause:
    head, bracket, rest = cause.field.partition("[")
    name = _NAMES.get(head, head)
    message = name + cause.message.removeprefix(head)
    return Cause(f"{name}{bracket}{rest}", cause.reason, message)
