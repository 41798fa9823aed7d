"""The specification of one Mac: the input of all steps, validated before the first connection.

Secrets keep their own type. Settings of the fleet and of one Mac are together here; only digests of files and artifacts become part of
the stamps, so neither a secret nor a name makes a Mac drift.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace

from bramley.api.host_settings import MAX_LEASE_SECONDS, MIN_LEASE_SECONDS
from bramley.api.names import host
from bramley.base.errors import Cause
from bramley.base.secret import Secret
from bramley.host import grammar
from bramley.host.agent_daemon import AgentJob
from bramley.host.artifacts import Artifact

PROTOCOLS = ("tcp", "udp")
# pf has one rule for each port of each network; their list must fit into the probe of the rules in force.
MAX_ALLOWED_NETWORKS = 64
MAX_PORTS = 16
MAX_RUNNER_LABELS = 32
# Returns a registration token of GitHub, which is valid for an hour; called only if a runner must be registered, directly before.
TokenSource = Callable[[], Awaitable[Secret]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailnet:
    """How a Mac joins the tailnet."""

    binaries: Artifact
    auth_key: Secret
    tags: tuple[str, ...] = ()
    accept_routes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedNetwork:
    """A private network that VMs may reach: with every protocol, with one, or at some ports, of TCP unless specified otherwise."""

    cidr: str
    # Ports and ranges such as 8000-8100. None: all.
    ports: tuple[int | str, ...] | None = None
    protocol: str = ""

    def check(self, field: str) -> Iterator[Cause]:
        """Yield the errors of its values."""
        yield from grammar.network(f"{field}.cidr", self.cidr)
        if self.protocol:
            yield from grammar.choice(f"{field}.protocol", self.protocol, *PROTOCOLS)
        if self.ports is None:
            return
        for index, value in enumerate(self.ports[:MAX_PORTS]):
            yield from grammar.ports(f"{field}.ports[{index}]", value)
        if not self.ports:
            rule = "must have an entry; leave it out to allow all ports"
            yield grammar.cause(f"{field}.ports", "[]", rule)
        yield from grammar.max_length(f"{field}.ports", self.ports, MAX_PORTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """Exceptions from the egress rules of VMs, which otherwise reach only the internet; empty: none."""

    cache_network: str = ""
    cluster_dns: str = ""
    private_network: str = ""
    allow: tuple[AllowedNetwork, ...] = ()

    def __post_init__(self) -> None:
        networks = {"cache_network": self.cache_network, "private_network": self.private_network}
        grammar.require(
            "the firewall",
            *(grammar.network(name, value) for name, value in networks.items() if value),
            grammar.host_name("cluster_dns", self.cluster_dns) if self.cluster_dns else (),
            grammar.max_length("allow", self.allow, MAX_ALLOWED_NETWORKS),
            *(
                allowed.check(f"allow[{index}]")
                for index, allowed in enumerate(self.allow[:MAX_ALLOWED_NETWORKS])
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """What makes a Mac a builder: a GitHub Actions runner on the Mac itself, which bakes images in VMs that belong to no Pod."""

    organisation: str
    labels: tuple[str, ...]
    # The archive of the runner, installed once: a runner updates itself.
    archive: Artifact
    # The runner group; empty: that of the organisation's default.
    group: str = ""
    # None: a registered runner stays, and one that must be registered is refused.
    token: TokenSource | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        grammar.require(
            "the actions runner",
            grammar.ORGANISATION.check("organisation", self.organisation),
            *(
                grammar.RUNNER_LABEL.check(f"runner_labels[{index}]", label)
                for index, label in enumerate(self.labels[:MAX_RUNNER_LABELS])
            ),
            grammar.max_length("runner_labels", self.labels, MAX_RUNNER_LABELS),
            () if self.labels else [grammar.cause("runner_labels", "[]", "must have an entry")],
            grammar.RUNNER_GROUP.check("group", self.group) if self.group else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MacSpec:
    """The desired state of one Mac; parts that are None are not managed, or removed if they were installed by us."""

    job: AgentJob
    password: Secret | None = None
    # Required lines of authorized_keys; other lines stay.
    public_keys: tuple[str, ...] = ()
    kubeconfig: Secret | None = None
    # The CA certificates (PEM) of clients that may read logs and metrics from the agent.
    client_authority: bytes = b""
    # Docker's configuration file with the logins that the agent pulls images with.
    registry_credentials: Secret | None = None
    egress: Egress = field(default_factory=Egress)
    # None: the default of the step.
    dhcp_lease_seconds: int | None = None
    tart: Artifact | None = None
    interpreter: Artifact | None = None
    agent: Artifact | None = None
    tailnet: Tailnet | None = None
    node_exporter: Artifact | None = None
    # Tart is installed once; it is replaced only on request, on an idle Mac.
    replace_tart: bool = False
    builder: Builder | None = None

    def __post_init__(self) -> None:
        if self.dhcp_lease_seconds is not None:
            grammar.require(
                "the DHCP server",
                grammar.count(
                    "dhcp_lease_seconds",
                    self.dhcp_lease_seconds,
                    minimum=MIN_LEASE_SECONDS,
                    maximum=MAX_LEASE_SECONDS,
                ),
            )
        if self.builder is None:
            return
        rule = "must be true or left out on a Mac with an actions runner"
        grammar.require(
            "the builder",
            [grammar.cause("is_builder", "false", rule)] if self.job.is_builder is False else (),
            grammar.RUNNER_NAME.check("node_name", self.job.node_name),
        )

    @property
    def agent_job(self) -> AgentJob:
        """Return the agent's job, with the settings that depend on other parts."""
        authority = host.CLIENT_AUTHORITY if self.client_authority else ""
        credentials = host.REGISTRY_CREDENTIALS if self.registry_credentials else ""
        return replace(
            self.job,
            # For the first start and for every update: the garbage collector would delete VMs of a bake.
            is_builder=True if self.builder else self.job.is_builder,
            client_ca_file=authority or self.job.client_ca_file,
            registry_credentials_file=credentials or self.job.registry_credentials_file,
        )

    @property
    def user(self) -> str:
        """Return the user that the agent runs as."""
        return self.job.user
