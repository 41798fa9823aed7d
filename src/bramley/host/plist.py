"""The agent's launchd job: its property list, rendered from what is known of one Mac.

One function renders it for a first start and for every update, from the same facts: a flag that depends on how we got here
would be lost on the other way. Loading the job is not done here.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers.expat import ExpatError

from bramley.api.names import flags, host, launchd, machines
from bramley.api.names.flags import Flag
from bramley.base.errors import BadConfiguration
from bramley.host import grammar

THROTTLE_SECONDS = 10
TAILSCALE = "tailscale"
LOOPBACK_HEALTH = "127.0.0.1:8081"
_MOST_CPU = 1024
_MOST_MEMORY_MB = 16 * 1024 * 1024
_MOST_PODS = 110
_MOST_MEGABYTES = 100_000
_OFF = {"0", "f", "F", "false", "FALSE", "False"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJob:
    """What the agent of one Mac is started with; one that exists has passed every grammar."""

    node_name: str
    host_cpu: int
    host_memory_mb: int
    max_pods: int
    user: str = machines.DEFAULT_SSH_USER
    node_labels: Mapping[str, str] = field(default_factory=dict)
    on_tailnet: bool = False
    provider_id: str = ""
    # Bakes images with VMs that no Pod asked for. None: not told, so an update keeps what the Mac has.
    is_builder: bool | None = None
    registry_credentials_file: str = ""
    client_ca_file: str = ""
    # The most that staging takes of the line; 0: no limit.
    stage_megabytes_per_second: int = 0
    # For a Mac that shares its network with others, as simulated ones do; empty: what the agent chooses by itself.
    node_ip: str = ""
    kubelet_bind_address: str = ""
    metrics_bind_address: str = ""
    health_bind_address: str = ""
    tart_home: str = ""

    def __post_init__(self) -> None:
        files = {
            "registry_credentials_file": self.registry_credentials_file,
            "client_ca_file": self.client_ca_file,
            "tart_home": self.tart_home,
        }
        grammar.require(
            "the agent's launchd job",
            grammar.NODE_NAME.check("node_name", self.node_name),
            grammar.count("host_cpu", self.host_cpu, most=_MOST_CPU),
            grammar.count("host_memory_mb", self.host_memory_mb, most=_MOST_MEMORY_MB),
            grammar.count("max_pods", self.max_pods, most=_MOST_PODS),
            grammar.USER_NAME.check("user", self.user),
            grammar.labels("node_labels", self.node_labels),
            grammar.PROVIDER_ID.check("provider_id", self.provider_id) if self.provider_id else (),
            *(grammar.PATH.check(name, path) for name, path in files.items() if path),
            grammar.count(
                "stage_megabytes_per_second",
                self.stage_megabytes_per_second or 1,
                most=_MOST_MEGABYTES,
            ),
            grammar.address("node_ip", self.node_ip) if self.node_ip else (),
            *(grammar.endpoint(name, one) for name, one in self._endpoints().items() if one),
        )

    @property
    def health(self) -> str:
        """Return where the agent tells how it does: on loopback, where only this Mac can ask, unless told otherwise."""
        given = self.health_bind_address or (LOOPBACK_HEALTH if self.on_tailnet else "")
        return given or flags.HEALTH_PROBE_BIND_ADDRESS.default

    def _endpoints(self) -> dict[str, str]:
        return {
            "kubelet_bind_address": self.kubelet_bind_address,
            "metrics_bind_address": self.metrics_bind_address,
            "health_bind_address": self.health_bind_address,
        }


def render(job: AgentJob, *, current: bytes = b"") -> bytes:
    """Return the property list; `current` is the one that the Mac has, empty if none."""
    is_builder = _is_builder(current) if job.is_builder is None else job.is_builder
    return plistlib.dumps(
        {
            "Label": launchd.AGENT,
            "UserName": job.user,
            "ProgramArguments": [host.AGENT_BINARY, *_arguments(job, is_builder=is_builder)],
            "EnvironmentVariables": {"HOME": host.home(job.user), "PATH": host.SEARCH_PATH},
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": THROTTLE_SECONDS,
            "StandardOutPath": host.AGENT_LOG,
            "StandardErrorPath": host.AGENT_LOG,
        },
        sort_keys=False,
    )


def _arguments(job: AgentJob, *, is_builder: bool) -> Iterator[str]:
    yield _set(flags.NODE_NAME, job.node_name)
    yield _set(flags.KUBECONFIG, host.AGENT_KUBECONFIG)
    yield _set(flags.HOST_CPU, job.host_cpu)
    yield _set(flags.HOST_MEMORY_MB, job.host_memory_mb)
    yield _set(flags.MAX_PODS, job.max_pods)
    if job.node_labels:
        pairs = (f"{key}={value}" for key, value in sorted(job.node_labels.items()))
        yield _set(flags.NODE_LABELS, ",".join(pairs))
    if job.on_tailnet:
        yield _set(flags.NODE_IP_SOURCE, TAILSCALE)
    if job.provider_id:
        yield _set(flags.PROVIDER_ID, job.provider_id)
    if is_builder:
        # Its VMs belong to no Pod: the collector would delete them in the middle of a push.
        yield flags.DISABLE_VM_GC.name
    yield from _newer_arguments(job)


def _newer_arguments(job: AgentJob) -> Iterator[str]:
    """Yield the flags that agents before this one did not know, behind those that they did."""
    if job.registry_credentials_file:
        yield _set(flags.REGISTRY_CREDENTIALS_FILE, job.registry_credentials_file)
    if job.client_ca_file:
        yield _set(flags.CLIENT_CA_FILE, job.client_ca_file)
    if job.stage_megabytes_per_second:
        yield _set(flags.STAGE_MEGABYTES_PER_SECOND, job.stage_megabytes_per_second)
    if job.health != flags.HEALTH_PROBE_BIND_ADDRESS.default:
        # On the tailnet the agent's own choice would be an address that this Mac's look at it cannot know.
        yield _set(flags.HEALTH_PROBE_BIND_ADDRESS, job.health)
    yield from _places(job)


def _places(job: AgentJob) -> Iterator[str]:
    given = {
        flags.NODE_IP: job.node_ip,
        flags.KUBELET_BIND_ADDRESS: job.kubelet_bind_address,
        flags.METRICS_BIND_ADDRESS: job.metrics_bind_address,
        flags.TART_HOME: job.tart_home,
    }
    yield from (_set(flag, value) for flag, value in given.items() if value)


def _set(flag: Flag, value: str | int) -> str:
    return f"{flag.name}={value}"


def _is_builder(current: bytes) -> bool:
    """Tell whether a Mac's property list keeps the collector off; an unreadable one is not guessed about."""
    if not current:
        return False
    name = flags.DISABLE_VM_GC.name
    given = [one.partition("=") for one in _read(current) if one.partition("=")[0] == name]
    return bool(given) and given[-1][2] not in _OFF


def _read(current: bytes) -> list[str]:
    path = launchd.daemon_plist(launchd.AGENT)
    try:
        arguments = plistlib.loads(current)["ProgramArguments"]
    # plistlib lets through whatever its parsing stumbles over.
    except (
        ExpatError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise BadConfiguration(
            f"{path} cannot be read ({type(error).__name__}); say whether this Mac is a builder, which it may be set to be"
        ) from error
    if not isinstance(arguments, list):
        raise BadConfiguration(
            f"{path} has no list of arguments; say whether this Mac is a builder"
        )
    return [one for one in arguments if isinstance(one, str)]
