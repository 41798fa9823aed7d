"""The names of Secrets and their keys."""

from __future__ import annotations

# GitHub App of the builder fleet.
APP_ID = "app-id"
INSTALLATION_ID = "installation-id"
PRIVATE_KEY = "private-key"

# The fleet's SSH key pair.
SSH_PRIVATE_KEY = "id_ed25519"
SSH_PUBLIC_KEY = "id_ed25519.pub"
SSH_SUFFIX = "-ssh"

# The Secret with the access to one Mac.
SUDO_PASSWORD = "sudo-password"  # noqa: S105 - the name of a key
SSH_USERNAME = "ssh-username"
HOST_FINGERPRINT = "host-fingerprint"
BOOTSTRAP_SUFFIX = "-bootstrap"

# Tailscale.
TAILSCALE_AUTH_KEY = "auth-key"

# Kubernetes' own ServiceAccount token Secret.
SERVICE_ACCOUNT_TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 - a type
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
TOKEN = "token"  # noqa: S105 - the name of a key
CA_CERTIFICATE = "ca.crt"


def fleet_ssh(fleet: str) -> str:
    """Return the name of the Secret with a fleet's SSH key pair."""
    return f"{fleet}{SSH_SUFFIX}"


def machine_bootstrap(machine: str) -> str:
    """Return the name of the Secret with the access to one Mac."""
    return f"{machine}{BOOTSTRAP_SUFFIX}"
