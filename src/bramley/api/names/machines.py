"""How Macs are named at the provider, and the defaults of a machine."""

from __future__ import annotations

# What the provider calls a host: free in the pool, being claimed; a claimed one bears its machine's name.
POOL_PREFIX = "tuist-pool-"
CLAIM_PREFIX = "tuist-claim-pending-"

PROVIDER_ID_SCHEME = "scw-applesilicon"

# What the provider, and macOS in /etc/kcpassword, put in place of a password they will not tell.
SEALED = "<sealed>"

DEFAULT_TYPE = "M2-L"
DEFAULT_ZONE = "fr-par-1"
DEFAULT_OS = "macos-tahoe-26.3"
DEFAULT_SSH_USER = "m1"
DEFAULT_GITHUB_ORGANISATION = "tuist"
DEFAULT_RUNNER_LABELS = "self-hosted,macos,bare-metal,vm-image-builder"

# The ClusterRole that an agent's identity is bound to.
AGENT_CLUSTER_ROLE = "tart-kubelet"


def provider_id(zone: str, server: str) -> str:
    """Return the id that ties a Node, its machine and the provider's server together."""
    return f"{PROVIDER_ID_SCHEME}://{zone}/{server}"
