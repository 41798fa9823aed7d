"""The flags of `tart-kubelet` with their environment variables and defaults, and their parser.

A flag overrides its environment variable, which overrides the default. Flags of older agents without effect here are accepted,
so that the property lists of existing Macs still start the agent; a warning is logged for each.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bramley.api.names import agent, flags, labels
from bramley.api.names.flags import Flag
from bramley.base.errors import BadConfiguration

WIDTH = 100
_SEE_HELP = f"{agent.NAME} --help lists all flags"
EXAMPLES = f"""\
Examples:
  {agent.NAME} --kubeconfig ./kubeconfig --node-labels zone=par-1,rack=7
  {agent.NAME} --node-ip-source tailscale --disable-vm-gc
  {agent.NAME} --show-settings
  {agent.NAME} lease -- tart push my-vm ghcr.io/example/my-vm:latest

A flag overrides its environment variable, which overrides the default. SIGTERM stops the agent; VMs keep running.
Exit codes: 0 stopped by a signal, 1 failed, 2 invalid usage or configuration, 70 a bug in Bramley.
"""


@dataclass(frozen=True, slots=True)
class FlagHelp:
    """One flag with its help text; `value` is the name of its argument, empty for a switch."""

    flag: Flag
    value: str
    text: str
    default: str = ""
    is_repeated: bool = False


def _ignored(flag: Flag, value: str = "VALUE") -> FlagHelp:
    return FlagHelp(flag, value, "Accepted for older property lists; ignored.")


NODE = (
    FlagHelp(flags.NODE_NAME, "NAME", "Name of the Node.", "this host's name"),
    FlagHelp(flags.PROVIDER_ID, "ID", "providerID of a Node that has none yet."),
    FlagHelp(flags.NODE_LABELS, "K=V,K=V", "Additional labels of the Node."),
    FlagHelp(
        flags.REGISTER_TAINTS,
        "KEY[=VALUE]:EFFECT,...",
        f"Taints of a Node that is registered, in addition to {labels.MACOS_TAINT}; an existing Node keeps its own.",
    ),
    FlagHelp(flags.NODE_IP, "IP", "Address of this Mac; overrides --node-ip-source."),
    FlagHelp(
        flags.NODE_IP_SOURCE,
        "auto|tailscale",
        "Source of the address: the first interface that is up, or the tailnet. With tailscale, endpoints with a default "
        "address listen on the tailnet only.",
    ),
    FlagHelp(flags.HOST_CPU, "CORES", "CPU capacity of the Node."),
    FlagHelp(flags.HOST_MEMORY_MB, "MIB", "Memory capacity of the Node in MiB."),
    FlagHelp(
        flags.MAX_PODS, "COUNT", "Pod capacity of the Node; at most two VMs run at the same time."
    ),
)
VMS = (
    FlagHelp(flags.TART_BINARY, "FILE", "Path of the tart program."),
    FlagHelp(flags.TART_HOME, "FOLDER", "Folder of tart's VMs and images.", "~/.tart"),
    FlagHelp(
        flags.DISABLE_VM_GC,
        "",
        "Never garbage-collect VMs or images, neither periodically nor when the disk is full.",
    ),
    FlagHelp(
        flags.VM_BOOT_TIMEOUT,
        "SECONDS",
        "A VM without an address after this time is discarded, and its Pod gets a new one.",
    ),
    FlagHelp(
        flags.DHCP_LEASES_FILE, "FILE", "Leases of the DHCP server from which VMs get addresses."
    ),
    FlagHelp(
        flags.GUI_PREFLIGHT,
        "auto|on|off",
        "Check for a GUI session before a VM starts and restart loginwindow without one; auto: if launchctl is on the PATH.",
    ),
    FlagHelp(
        flags.REGISTRY_CREDENTIALS_FILE,
        "FILE",
        "Docker configuration file with registry credentials for Pods without imagePullSecrets.",
    ),
    FlagHelp(
        flags.STAGE_MEGABYTES_PER_SECOND,
        "NUMBER",
        "Bandwidth limit of image staging.",
        "no limit",
    ),
)
SERVING = (
    FlagHelp(
        flags.KUBELET_BIND_ADDRESS, "HOST:PORT", "HTTPS address of logs and stats; 0 disables it."
    ),
    FlagHelp(flags.TLS_CERT_FILE, "FILE", "Certificate of the HTTPS server.", "self-signed"),
    FlagHelp(flags.TLS_KEY_FILE, "FILE", "Private key of the HTTPS server."),
    FlagHelp(
        flags.CLIENT_CA_FILE, "FILE", "Certificate authority of accepted client certificates."
    ),
    FlagHelp(
        flags.METRICS_BIND_ADDRESS, "HOST:PORT", "Address of Prometheus metrics; 0 disables it."
    ),
    FlagHelp(
        flags.HEALTH_PROBE_BIND_ADDRESS,
        "HOST:PORT",
        "Address of /healthz and /readyz; 0 disables it.",
    ),
    FlagHelp(
        flags.SCRAPE_ALLOWED_CIDR,
        "CIDR",
        "Networks that may scrape guest metrics through the Node; repeatable.",
        "private networks",
        is_repeated=True,
    ),
)
FOLDERS = (
    FlagHelp(
        flags.KUBECONFIG, "FILE", "Kubeconfig of the cluster.", "in-cluster, or ~/.kube/config"
    ),
    FlagHelp(flags.STATE_DIR, "FOLDER", "Folder of the agent's records of VMs and images."),
    FlagHelp(flags.USERDATA_DIR, "FOLDER", "Folder shared with guests: their inputs and reports."),
    FlagHelp(flags.VM_LOG_DIR, "FOLDER", "Folder of the VMs' output."),
    FlagHelp(flags.AGENT_LOG_LEVEL, "debug|info|warning|error", "Lowest severity that is logged."),
    FlagHelp(
        flags.AGENT_LOG_FORMAT,
        "auto|readable|json",
        "Format of log lines; auto: readable on a terminal, else json.",
    ),
)
IGNORED = (
    _ignored(flags.VNC_CONTROL_DIR),
    _ignored(flags.VNC_RELAY_HOST),
    _ignored(flags.VNC_RELAY_PORT),
    _ignored(flags.RUNNER_CACHE_ROOT),
    _ignored(flags.CACHE_VOLUME_CAP_GIB),
    _ignored(flags.CACHE_VOLUME_CAS_GIB),
    _ignored(flags.ZAP_DEVEL, ""),
    _ignored(flags.ZAP_ENCODER),
    _ignored(flags.ZAP_LOG_LEVEL),
    _ignored(flags.ZAP_STACKTRACE_LEVEL),
    _ignored(flags.ZAP_TIME_ENCODING),
)
GROUPS = (
    ("Node", NODE),
    ("VMs and images", VMS),
    ("Endpoints", SERVING),
    ("Folders, cluster and logs", FOLDERS),
    ("Ignored", IGNORED),
)


@dataclass(frozen=True, slots=True)
class FlagValues:
    """The values of all flags, and their sources: `flag`, `environment NAME` or `default`."""

    values: Mapping[str, str]
    sources: Mapping[str, str]
    repeated: Mapping[str, tuple[str, ...]]

    def text(self, flag: Flag) -> str:
        """Return the value as text."""
        return self.values[flag.name]

    def source_name(self, flag: Flag) -> str:
        """Return the flag or environment variable of a value, for messages."""
        source = self.sources[flag.name]
        return source.partition(" ")[2] if source.startswith("environment") else flag.name

    def is_default(self, flag: Flag) -> bool:
        """Return whether the value is the default."""
        return self.sources[flag.name] == "default"

    def number(self, flag: Flag, *, least: int = 0) -> int:
        """Return the value as an integer."""
        text = self.text(flag)
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise BadConfiguration(
                f"{self.source_name(flag)} {text!r} is not an integer of at least {least}"
            )
        return int(text)

    def positive_number(self, flag: Flag) -> float | None:
        """Return the value as a positive number; None without a value."""
        text = self.text(flag)
        if not text:
            return None
        if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) <= 0:
            raise BadConfiguration(f"{self.source_name(flag)} {text!r} is not a positive number")
        return float(text)

    def is_on(self, flag: Flag) -> bool:
        """Return the value as a boolean, in the spellings of Go's flag package."""
        text = self.text(flag)
        if text in {"1", "t", "T", "true", "TRUE", "True"}:
            return True
        if text in {"0", "f", "F", "false", "FALSE", "False"}:
            return False
        raise BadConfiguration(f"{self.source_name(flag)} {text!r} is neither true nor false")

    def choice(self, flag: Flag, *choices: str) -> str:
        """Return the value, which must be one of the choices."""
        text = self.text(flag)
        if text not in choices:
            raise BadConfiguration(
                f"{self.source_name(flag)} {text!r} is unknown; choose {' or '.join(choices)}"
            )
        return text

    def key_values(self, flag: Flag) -> dict[str, str]:
        """Return the value, `k=v,k=v`, as a dictionary; empty parts are skipped."""
        pairs = {}
        for pair in filter(None, (part.strip() for part in self.text(flag).split(","))):
            key, equals, value = pair.partition("=")
            if not (equals and key.strip()):
                raise BadConfiguration(
                    f"{self.source_name(flag)}: {pair!r} is not key=value; write it like zone=par-1,rack=7"
                )
            pairs[key.strip()] = value.strip()
        return pairs


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog=agent.NAME,
        usage=f"{agent.NAME} [FLAGS]\n       {agent.NAME} lease [--vm NAME] -- COMMAND",
        description="Run this Mac as a Kubernetes Node; each Pod is a fresh macOS virtual machine.",
        epilog=EXAMPLES,
        formatter_class=partial(
            argparse.RawDescriptionHelpFormatter, width=WIDTH, max_help_position=34
        ),
        allow_abbrev=False,
        add_help=False,
        exit_on_error=False,
    )
    for title, entries in GROUPS:
        group = result.add_argument_group(title)
        for entry in entries:
            _add(group, entry)
    other = result.add_argument_group("Other")
    other.add_argument(
        "--show-settings",
        action="store_true",
        help="Print each setting with its value and source, and exit.",
    )
    other.add_argument("--version", action="store_true", help="Print the version and exit.")
    other.add_argument("-h", "--help", action="help", help="Show this message and exit.")
    return result


def _add(group: argparse._ArgumentGroup, entry: FlagHelp) -> None:
    notes = [f"env: {entry.flag.env}"] if entry.flag.env else []
    default = entry.flag.default or entry.default
    notes += [f"default: {default}"] if default and entry.value else []
    text = f"{entry.text} [{'; '.join(notes)}]" if notes else entry.text
    # argparse interprets percent signs.
    text = text.replace("%", "%%")
    if entry.is_repeated:
        group.add_argument(entry.flag.name, action="append", metavar=entry.value, help=text)
    elif entry.value:
        group.add_argument(entry.flag.name, metavar=entry.value, help=text)
    else:
        # A switch accepts a value, too: --disable-vm-gc=false.
        group.add_argument(entry.flag.name, nargs="?", const="true", metavar="false", help=text)


def read(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[FlagValues, argparse.Namespace]:
    """Parse a command line; BadConfiguration for an invalid one."""
    try:
        parsed, surplus = parser().parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise BadConfiguration(f"{error}; {_SEE_HELP}") from error
    if surplus:
        raise BadConfiguration(_unknown(surplus[0]))
    values, sources, repeated = {}, {}, {}
    for entry in all_flags():
        flag = entry.flag
        value = getattr(parsed, flag.name.removeprefix("--").replace("-", "_"))
        if entry.is_repeated:
            repeated[flag.name] = tuple(value or ())
            value = ",".join(value) if value else None
        values[flag.name], sources[flag.name] = _value(flag, value, environment)
    return FlagValues(values, sources, repeated), parsed


def _unknown(word: str) -> str:
    import difflib

    names = [entry.flag.name for entry in all_flags()]
    close = difflib.get_close_matches(word.partition("=")[0], names, n=1, cutoff=0.8)
    hint = f"did you mean {close[0]}?" if close else _SEE_HELP
    return f"{word!r} is unknown; {hint}"


def all_flags() -> Iterable[FlagHelp]:
    """Yield every flag."""
    for _, entries in GROUPS:
        yield from entries


def _value(flag: Flag, written: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    if written is not None:
        return written, "flag"
    if flag.env and environment.get(flag.env):
        return environment[flag.env], f"environment {flag.env}"
    return flag.default, "default"


def ignored_flags(values: FlagValues) -> list[str]:
    """Return the given flags and variables that have no effect."""
    return [values.source_name(each.flag) for each in IGNORED if not values.is_default(each.flag)]
