"""The settings of an agent, from the command line or from a simulated fleet, already validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bramley.api.core import Taint
from bramley.api.names import agent, host

# The size of a Mac mini of the fleet, and the limit of Apple's licence; a configured zero means these.
HOST_CPU = 8
HOST_MEMORY_MB = 16384
MAX_PODS = 2
# A guest has its address within seconds; a slow Mac after an update may take minutes.
VM_BOOT_TIMEOUT = timedelta(minutes=5)

# Sources of the Node's address when none is configured.
AUTO = "auto"
TAILSCALE = "tailscale"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of the Node object."""

    name: str
    provider_id: str = ""
    address: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # The taints of a new Node, in addition to the agent's own.
    register_taints: tuple[Taint, ...] = ()
    cpu: int = HOST_CPU
    memory_mb: int = HOST_MEMORY_MB
    max_pods: int = MAX_PODS


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of the agent and of tart, and the lease file of macOS' DHCP server."""

    state: Path = Path(host.AGENT_STATE)
    user_data: Path = Path(host.VM_USER_DATA)
    vm_logs: Path = Path(host.VM_LOGS)
    tart_home: Path = Path("~/.tart")
    dhcp_leases: Path = Path(host.DHCP_LEASES)

    @property
    def lock(self) -> Path:
        """Return the file that the running agent keeps locked."""
        return self.state / agent.LOCK_FILE

    @property
    def ledger(self) -> Path:
        """Return the folder of the ledger."""
        return self.state / "ledger"

    @property
    def clock(self) -> Path:
        """Return the file of the clock offsets of this boot."""
        return self.state / "clock"

    @property
    def agent_token(self) -> Path:
        """Return the file of the agent's renewed token."""
        return self.state / "token"

    @property
    def refusal(self) -> Path:
        """Return the file of the last start of a VM that macOS refused."""
        return self.state / "refusal"

    @property
    def leases(self) -> Path:
        """Return the folder of the leases that block garbage collection."""
        return self.state / "leases"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to listen on; an empty host means every interface."""

    host: str
    port: int
    # Not configured, so it may be replaced by the address in the tailnet.
    is_default: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the kubelet endpoints listen, their certificate, and the authority of client certificates."""

    endpoint: Endpoint
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of an agent; an endpoint that is None is not served."""

    node: NodeSettings
    address_source: str = AUTO
    folders: Folders = field(default_factory=Folders)
    tart_binary: str = host.TART_BINARY
    # The user whose GUI session VMs need; None if the agent does not manage a session.
    gui_session_uid: int | None = None
    gc_enabled: bool = True
    # A VM whose guest has no address after this time is discarded, and its Pod gets a new one.
    vm_boot_timeout: timedelta = VM_BOOT_TIMEOUT
    metrics: Endpoint | None = None
    health: Endpoint | None = None
    serving: Serving | None = None
    registry_credentials: Path | None = None
    # None: without a limit.
    stage_megabytes_per_second: float | None = None
    scrape_allowed: tuple[str, ...] = ()
