"""A Mac as its machine or MacHost describes it, in the form that both kinds have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bramley.api.core import Node
from bramley.api.host_settings import HostSettings
from bramley.api.names import labels
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.base import errors
from bramley.machines.host_leases import Holder
from bramley.machines.host_operations import Unprepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Mac:
    """One Mac; its address is known."""

    # The machine or the MacHost.
    holder: Holder
    provider_id: str
    address: str
    user: str
    port: int = 22
    # Empty without a fleet.
    fleet: str = ""
    # The labels of its Node that are configured, that of its fleet included.
    labels: Mapping[str, str] = field(default_factory=dict)
    # 0: the manager's.
    host_cpu: int = 0
    host_memory_mb: int = 0
    # As specified; absent settings are the manager's.
    settings: HostSettings = field(default_factory=HostSettings)
    builder: GHActionsRunner | None = None
    # Of a Mac that its team owns: the Secret with its login.
    credentials_secret_name: str = ""

    @property
    def name(self) -> str:
        """Return the name of the machine, which is also that of its Node, of its host and of a builder's runner."""
        return self.holder.name

    @property
    def namespace(self) -> str:
        """Return the namespace of the machine and of the Secrets that it refers to."""
        return self.holder.namespace

    def owns(self, node: Node) -> bool:
        """Return whether a Node of this name is that of this Mac, and not of another host."""
        is_mac = node.metadata.labels.get(labels.OS, labels.DARWIN) == labels.DARWIN
        return is_mac and node.spec.provider_id in {"", self.provider_id}

    def foreign_node(self, node: Node) -> str:
        """Return what a Node is that has the name of this Mac and is not its own."""
        whose = node.spec.provider_id or "no Mac"
        return f"there is a Node {self.name} already, which is {whose}"

    def describe(self, error: Exception) -> str:
        """Return the text of an error; for a MacHost with the fields that may have to be changed."""
        if isinstance(error, errors.LoginRefused) and self.credentials_secret_name:
            secret = f"{self.namespace}/{self.credentials_secret_name}"
            return f"{error} (spec.user is {self.user}, spec.credentialsSecretName names the Secret {secret})"
        if isinstance(error, errors.HostUnreachable) and self.credentials_secret_name:
            return f"{error} (spec.address is {self.address}, spec.port is {self.port})"
        if isinstance(error, errors.BramleyError | Unprepared):
            return str(error)
        return f"unexpected error {type(error).__name__}; the manager's log has the details"
