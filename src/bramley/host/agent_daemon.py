"""The agent's launchd job: its property list, the note that its process must be restarted, and the end of its log.

One function renders the property list for the first start and for every update, from the same input, so that no flag depends on the
path taken. Loading the job is done by the step `agent-job`.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers.expat import ExpatError

from bramley.api.names import flags, host, launchd, machines
from bramley.api.names.flags import Flag
from bramley.base.errors import BadConfiguration, Cause
from bramley.base.secret import HIDDEN
from bramley.host import drift, grammar, launch_daemon, shared_probes
from bramley.host.commands import Command, Probe, ReadFile, RunProbe, Write
from bramley.host.facts import Facts, RunResult

THROTTLE_SECONDS = 10
TAILSCALE = "tailscale"
LOOPBACK_HEALTH = "127.0.0.1:8081"
_MAX_CPU = 1024
_MAX_MEMORY_MB = 16 * 1024 * 1024
_MAX_PODS = 110
_MAX_MEGABYTES = 100_000
_MAX_BOOT_SECONDS = 86_400
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}
AGENT_PROBE = launch_daemon.job_probe(launchd.AGENT)
_RESTART_NOTE = ReadFile(host.RESTART_DUE, max_bytes=64)
RESTART_PROBES: tuple[Probe, ...] = (AGENT_PROBE, shared_probes.BOOT_SESSION, _RESTART_NOTE)
_LOG_BYTES = 4096
_LOG_LINES = 3
_LOG_LINE_LENGTH = 400
# Only probed while the agent is unhealthy, since it costs another round trip.
LOG_TAIL = RunProbe(("tail", "-c", str(_LOG_BYTES), host.AGENT_LOG))
# The agent logs no secrets; programs that it runs may.
_SECRETS = re.compile(
    r"eyJ[\w-]+\.[\w.-]+|tskey-[\w-]+|(?<=://)[^\s/@]*:[^\s/@]*(?=@)|(?<=Bearer )\S+", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJob:
    """The configuration of the agent of one Mac; every instance is validated."""

    node_name: str
    host_cpu: int
    host_memory_mb: int
    max_pods: int
    user: str = machines.DEFAULT_SSH_USER
    node_labels: Mapping[str, str] = field(default_factory=dict)
    register_taints: tuple[str, ...] = ()
    on_tailnet: bool = False
    provider_id: str = ""
    # A builder creates images in VMs that belong to no Pod. None: not specified, so an update keeps the current value.
    is_builder: bool | None = None
    registry_credentials_file: str = ""
    client_ca_file: str = ""
    # The bandwidth limit of image staging; 0: no limit.
    stage_megabytes_per_second: int = 0
    # How long a VM may run without an address. None: the agent's default.
    vm_boot_timeout_seconds: int | None = None
    # For Macs that share a network namespace, as simulated ones do; empty: the agent's own choice.
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
            grammar.count("host_cpu", self.host_cpu, maximum=_MAX_CPU),
            grammar.count("host_memory_mb", self.host_memory_mb, maximum=_MAX_MEMORY_MB),
            grammar.count("max_pods", self.max_pods, maximum=_MAX_PODS),
            grammar.USER_NAME.check("user", self.user),
            grammar.labels("node_labels", self.node_labels),
            grammar.taints("register_taints", self.register_taints),
            grammar.PROVIDER_ID.check("provider_id", self.provider_id) if self.provider_id else (),
            *(grammar.PATH.check(name, path) for name, path in files.items() if path),
            grammar.count(
                "stage_megabytes_per_second",
                self.stage_megabytes_per_second or 1,
                maximum=_MAX_MEGABYTES,
            ),
            self._check_boot_timeout(),
            grammar.address("node_ip", self.node_ip) if self.node_ip else (),
            *(grammar.endpoint(name, text) for name, text in self._endpoints().items() if text),
        )

    @property
    def health(self) -> str:
        """Return the address of the agent's health endpoint: loopback, unless configured otherwise."""
        address = self.health_bind_address or (LOOPBACK_HEALTH if self.on_tailnet else "")
        return address or flags.HEALTH_PROBE_BIND_ADDRESS.default

    def _check_boot_timeout(self) -> Iterator[Cause]:
        if self.vm_boot_timeout_seconds is not None:
            yield from grammar.count(
                "vm_boot_timeout_seconds", self.vm_boot_timeout_seconds, maximum=_MAX_BOOT_SECONDS
            )

    def _endpoints(self) -> dict[str, str]:
        return {
            "kubelet_bind_address": self.kubelet_bind_address,
            "metrics_bind_address": self.metrics_bind_address,
            "health_bind_address": self.health_bind_address,
        }


def render_plist(job: AgentJob, *, current: bytes = b"") -> bytes:
    """Return the property list; `current` is the one on the Mac, empty if there is none."""
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
    yield _flag(flags.NODE_NAME, job.node_name)
    yield _flag(flags.KUBECONFIG, host.AGENT_KUBECONFIG)
    yield _flag(flags.HOST_CPU, job.host_cpu)
    yield _flag(flags.HOST_MEMORY_MB, job.host_memory_mb)
    yield _flag(flags.MAX_PODS, job.max_pods)
    if job.node_labels:
        pairs = (f"{key}={value}" for key, value in sorted(job.node_labels.items()))
        yield _flag(flags.NODE_LABELS, ",".join(pairs))
    if job.on_tailnet:
        yield _flag(flags.NODE_IP_SOURCE, TAILSCALE)
    if job.provider_id:
        yield _flag(flags.PROVIDER_ID, job.provider_id)
    if is_builder:
        # A builder's VMs belong to no Pod: the garbage collector would delete them during a push.
        yield flags.DISABLE_VM_GC.name
    yield from _newer_arguments(job)


def _newer_arguments(job: AgentJob) -> Iterator[str]:
    """Yield the flags that older agents do not know, after those that they do."""
    if job.registry_credentials_file:
        yield _flag(flags.REGISTRY_CREDENTIALS_FILE, job.registry_credentials_file)
    if job.client_ca_file:
        yield _flag(flags.CLIENT_CA_FILE, job.client_ca_file)
    if job.stage_megabytes_per_second:
        yield _flag(flags.STAGE_MEGABYTES_PER_SECOND, job.stage_megabytes_per_second)
    if job.register_taints:
        yield _flag(flags.REGISTER_TAINTS, ",".join(job.register_taints))
    if job.vm_boot_timeout_seconds is not None:
        yield _flag(flags.VM_BOOT_TIMEOUT, job.vm_boot_timeout_seconds)
    if job.health != flags.HEALTH_PROBE_BIND_ADDRESS.default:
        # On the tailnet the agent would choose an address that the health probe cannot know.
        yield _flag(flags.HEALTH_PROBE_BIND_ADDRESS, job.health)
    yield from _optional_flags(job)


def _optional_flags(job: AgentJob) -> Iterator[str]:
    values = {
        flags.NODE_IP: job.node_ip,
        flags.KUBELET_BIND_ADDRESS: job.kubelet_bind_address,
        flags.METRICS_BIND_ADDRESS: job.metrics_bind_address,
        flags.TART_HOME: job.tart_home,
    }
    yield from (_flag(flag, value) for flag, value in values.items() if value)


def _flag(flag: Flag, value: str | int) -> str:
    return f"{flag.name}={value}"


def _is_builder(current: bytes) -> bool:
    """Return whether the Mac's property list disables the VM garbage collector; an unreadable one is an error, not a guess."""
    if not current:
        return False
    name = flags.DISABLE_VM_GC.name
    values = [argument.partition("=") for argument in _program_arguments(current)]
    matching = [value for flag, _, value in values if flag == name]
    return bool(matching) and matching[-1] not in _FALSE


def _program_arguments(current: bytes) -> list[str]:
    path = launchd.daemon_plist(launchd.AGENT)
    try:
        arguments = plistlib.loads(current)["ProgramArguments"]
    # plistlib does not wrap the errors of its parsers.
    except (
        ExpatError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise BadConfiguration(
            f"{path} cannot be read ({type(error).__name__}), so it is unknown whether this Mac is a builder; set builder explicitly"
        ) from error
    if not isinstance(arguments, list):
        raise BadConfiguration(
            f"{path} has no list of arguments, so it is unknown whether this Mac is a builder; set builder explicitly"
        )
    return [argument for argument in arguments if isinstance(argument, str)]


def is_restart_due(facts: Facts) -> bool:
    """Return whether the agent still runs in the process that must be replaced."""
    return _agent_pid(facts) != 0 and facts.file(_RESTART_NOTE) == _restart_note(facts)


def note_restart(facts: Facts) -> Iterator[Command]:
    """Yield the commands that record that the current agent process must be restarted; nothing if none runs or it is recorded.

    This must precede the change that requires the restart: an interruption then leaves a superfluous note, never a missing one. The
    note is not removed; it no longer applies once the agent has another process. Process ids repeat after a reboot, so it includes
    the boot session.
    """
    if _agent_pid(facts) == 0 or is_restart_due(facts):
        return
    yield drift.CREATE_FOLDER
    yield Write(
        path=host.RESTART_DUE,
        content=_restart_note(facts),
        purpose="record that the agent must be restarted",
        before=facts.file(_RESTART_NOTE),
    )


def _agent_pid(facts: Facts) -> int:
    return launch_daemon.pid(facts.result(AGENT_PROBE))


def _restart_note(facts: Facts) -> bytes:
    return f"{shared_probes.boot_session(facts)} {_agent_pid(facts)}\n".encode()


def describe_log(facts: Facts) -> str:
    """Return the path of the agent's log and, if it was probed, its last lines without secrets."""
    result = facts.results.get(LOG_TAIL)
    lines = _last_lines(result) if isinstance(result, RunResult) and result.code == 0 else []
    if not lines:
        return f"see {host.AGENT_LOG} on the Mac"
    return f"{host.AGENT_LOG} on the Mac ends with: {' | '.join(lines)}"


def _last_lines(result: RunResult) -> list[str]:
    text = result.output.decode("utf-8", "replace")
    if len(result.output) >= _LOG_BYTES:
        # A truncated first line may hold the rest of a secret that the pattern does not recognize.
        text = text.partition("\n")[2]
    lines = [line for line in _SECRETS.sub(HIDDEN, text).splitlines() if line.strip()]
    return [_printable(line) for line in lines[-_LOG_LINES:]]


def _printable(line: str) -> str:
    plain = " ".join("".join(char if char.isprintable() else " " for char in line).split())
    return plain if len(plain) <= _LOG_LINE_LENGTH else f"{plain[:_LOG_LINE_LENGTH]}…"
