"""The names of Macs at the provider, and the defaults of a machine."""

from __future__ import annotations

# The prefix of a host's name while it is in the pool, and while it is being claimed; a claimed host has its machine's name.
POOL_PREFIX = "tuist-pool-"
CLAIM_PREFIX = "tuist-claim-pending-"

PROVIDER_ID_SCHEME = "scw-applesilicon"
# Of Macs that a team owns.
MAC_HOST_SCHEME = "mac-host"

# The ConfigMap with the hosts whose bootstrap has failed, by id.
HOST_FAILURES = "mac-host-failures"

# The prefix of the name of a host's Lease; the rest is the id of the host.
HOST_LEASE_PREFIX = "mac-host-"

# The placeholder of the provider, and of macOS in /etc/kcpassword, for a password that is not disclosed.
SEALED = "<sealed>"

DEFAULT_TYPE = "M2-L"
DEFAULT_ZONE = "fr-par-1"
DEFAULT_OS = "macos-tahoe-26.3"
DEFAULT_SSH_USER = "m1"
DEFAULT_GITHUB_ORGANISATION = "tuist"
DEFAULT_RUNNER_LABELS = "self-hosted,macos,bare-metal,vm-image-builder"

# Where the image of the manager has what it sends to Macs.
AGENT_ARCHIVE = "/opt/tart-kubelet/agent.tar.gz"
AGENT_INTERPRETER = "/opt/tart-kubelet/interpreter.tar.gz"
TART_TARBALL = "/opt/tart/tart.tar.gz"

# The ClusterRole that an agent's identity is bound to.
AGENT_CLUSTER_ROLE = "tart-kubelet"


def provider_id(zone: str, server: str) -> str:
    """Return the provider id that a Node and its machine have in common."""
    return f"{PROVIDER_ID_SCHEME}://{zone}/{server}"


def mac_host_provider_id(namespace: str, name: str) -> str:
    """Return the provider id of the Node of a MacHost."""
    return f"{MAC_HOST_SCHEME}://{namespace}/{name}"
