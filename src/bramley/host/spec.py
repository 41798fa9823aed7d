"""What one Mac is to become: everything that steps are made from, checked by grammar before the first connection.

Secrets are held as such. What a whole fleet shares and what belongs to one Mac stand together; only digests of files and of
artifacts reach the stamps, so a secret or a name does not make a Mac drift.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bramley.api.names import host
from bramley.base.secret import Secret
from bramley.host import grammar
from bramley.host.artifacts import Artifact
from bramley.host.plist import AgentJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailnet:
    """How a Mac joins the tailnet."""

    binaries: Artifact
    auth_key: Secret
    tags: tuple[str, ...] = ()
    accept_routes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """Where VMs may go besides the internet: networks of IPv4 and the cluster's resolver; empty is nowhere."""

    cache_network: str = ""
    cluster_dns: str = ""
    private_network: str = ""

    def __post_init__(self) -> None:
        networks = {"cache_network": self.cache_network, "private_network": self.private_network}
        grammar.require(
            "the firewall",
            *(grammar.network(name, value) for name, value in networks.items() if value),
            grammar.host_name("cluster_dns", self.cluster_dns) if self.cluster_dns else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MacSpec:
    """One Mac, as it should be; what is None is not managed, or taken away if it is ours."""

    job: AgentJob
    password: Secret | None = None
    # Lines of authorized_keys that must be there; others stay.
    public_keys: tuple[str, ...] = ()
    kubeconfig: Secret | None = None
    # Certificates (PEM) of those who sign for whoever may ask the agent for logs and figures.
    client_authority: bytes = b""
    egress: Egress = field(default_factory=Egress)
    tart: Artifact | None = None
    interpreter: Artifact | None = None
    agent: Artifact | None = None
    tailnet: Tailnet | None = None
    node_exporter: Artifact | None = None
    # Tart is installed once; another version comes only when somebody asks for it, on an idle Mac.
    replace_tart: bool = False

    @property
    def agent_job(self) -> AgentJob:
        """Return the agent's job, with what other parts of the Mac bring to it."""
        if not self.client_authority:
            return self.job
        return replace(self.job, client_ca_file=host.CLIENT_AUTHORITY)

    @property
    def user(self) -> str:
        """Return the user who runs everything."""
        return self.job.user
