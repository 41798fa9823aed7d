"""What an agent is told at its start, whoever tells it: the command line, or a simulated fleet.

Everything is resolved here already: names are names, addresses are addresses, and `auto` has become a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bramley.api.names import agent, host

# What a Mac mini of the fleet has, and what Apple's licence allows; a zero given by somebody means these.
HOST_CPU = 8
HOST_MEMORY_MB = 16384
MAX_PODS = 2

# Where the Node's address comes from when none is given.
AUTO = "auto"
TAILSCALE = "tailscale"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What the Node says of this Mac."""

    name: str
    provider_id: str = ""
    address: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: int = HOST_CPU
    memory_mb: int = HOST_MEMORY_MB
    max_pods: int = MAX_PODS


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the agent and tart keep things."""

    state: Path = Path(host.AGENT_STATE)
    user_data: Path = Path(host.VM_USER_DATA)
    vm_logs: Path = Path(host.VM_LOGS)
    tart_home: Path = Path("~/.tart")

    @property
    def lock(self) -> Path:
        """Return the file that only one agent at a time holds."""
        return self.state / agent.LOCK_FILE

    @property
    def ledger(self) -> Path:
        """Return the folder of what the agent made on this host."""
        return self.state / "ledger"

    @property
    def clock(self) -> Path:
        """Return the file of what the host's time of day has done since the host was started."""
        return self.state / "clock"

    @property
    def own_token(self) -> Path:
        """Return the file of the agent's own token, once it was renewed."""
        return self.state / "token"

    @property
    def leases(self) -> Path:
        """Return the folder of the leases that keep the collector away."""
        return self.state / "leases"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to listen on; an empty host means every interface."""

    host: str
    port: int
    # Nobody chose it, so it may move to the tailnet.
    is_default: bool = False

    def __str__(self) -> str:
        told = f"[{self.host}]" if ":" in self.host else self.host
        return f"{told}:{self.port}"


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the kubelet's endpoints listen, and how callers and we prove who we are."""

    endpoint: Endpoint
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it; an endpoint that is None is not served."""

    node: NodeSettings
    address_source: str = AUTO
    folders: Folders = field(default_factory=Folders)
    tart_binary: str = host.TART_BINARY
    # The user whose GUI session VMs need; None where no session is looked after.
    session_of: int | None = None
    collects: bool = True
    metrics: Endpoint | None = None
    health: Endpoint | None = None
    serving: Serving | None = None
    registry_credentials: Path | None = None
    # None: as fast as it goes.
    stage_megabytes_per_second: float | None = None
    scrape_allowed: tuple[str, ...] = ()
