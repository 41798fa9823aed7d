"""A Mac as its machine or MacHost describes it, in the form that both kinds have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bramley.api.host_settings import HostSettings
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.machines.host_leases import Holder


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
