"""The flags of `tart-kubelet`: declared once with their variables and defaults, read, and made into the agent's settings.

A flag wins over its environment variable, which wins over the default. Flags that only older agents acted on are accepted, so
that the property lists of existing Macs start this one; a warning says that they do nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bramley.api.names import agent, flags
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

A flag wins over its environment variable, and that over the default. SIGTERM ends the agent and leaves VMs running.
Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage or unusable configuration, 70 a bug of ours.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """One flag as people see it; `value` names its argument, empty for a switch."""

    flag: Flag
    value: str
    text: str
    default: str = ""
    is_repeated: bool = False


def _ignored(flag: Flag, value: str = "VALUE") -> Known:
    return Known(flag, value, "Accepted from older property lists.")


NODE = (
    Known(flags.NODE_NAME, "NAME", "Name of the Node.", "this host's name"),
    Known(flags.PROVIDER_ID, "ID", "providerID to fill in where the Node has none."),
    Known(flags.NODE_LABELS, "K=V,K=V", "Labels of the Node besides those that the agent sets."),
    Known(flags.NODE_IP, "IP", "Address at which others reach this Mac; overrides the source."),
    Known(
        flags.NODE_IP_SOURCE,
        "auto|tailscale",
        "Where the address comes from: the first interface that is up, or the tailnet. With tailscale, whatever listens "
        "on a default address listens on the tailnet only.",
    ),
    Known(flags.HOST_CPU, "CORES", "CPU cores that the Node offers."),
    Known(flags.HOST_MEMORY_MB, "MIB", "Memory that the Node offers."),
    Known(
        flags.MAX_PODS, "COUNT", "Pods that the Node takes; more than two VMs never run at once."
    ),
)
VMS = (
    Known(flags.TART_BINARY, "FILE", "The tart program."),
    Known(flags.TART_HOME, "FOLDER", "Where tart keeps VMs and images.", "~/.tart"),
    Known(
        flags.DISABLE_VM_GC,
        "",
        "Delete no VM and no image on this agent's own account, neither from time to time nor when the disk is full.",
    ),
    Known(
        flags.GUI_PREFLIGHT,
        "auto|on|off",
        "Look for a GUI session before a VM starts and restart loginwindow if there is none; auto: where launchctl is on "
        "the PATH.",
    ),
    Known(
        flags.REGISTRY_CREDENTIALS_FILE,
        "FILE",
        "Docker configuration with credentials of registries, for Pods without imagePullSecrets.",
    ),
    Known(
        flags.STAGE_MEGABYTES_PER_SECOND,
        "NUMBER",
        "The most that staging images ahead may take of the line.",
        "no limit",
    ),
)
SERVING = (
    Known(flags.KUBELET_BIND_ADDRESS, "HOST:PORT", "Logs and stats over HTTPS; 0 serves none."),
    Known(flags.TLS_CERT_FILE, "FILE", "Certificate of that server.", "self-signed"),
    Known(flags.TLS_KEY_FILE, "FILE", "Key of that certificate."),
    Known(flags.CLIENT_CA_FILE, "FILE", "Authority whose client certificates are believed."),
    Known(flags.METRICS_BIND_ADDRESS, "HOST:PORT", "Metrics for Prometheus; 0 serves none."),
    Known(flags.HEALTH_PROBE_BIND_ADDRESS, "HOST:PORT", "/healthz and /readyz; 0 serves none."),
    Known(
        flags.SCRAPE_ALLOWED_CIDR,
        "CIDR",
        "Who may reach guests' metrics through the Node; may be given several times.",
        "private networks",
        is_repeated=True,
    ),
)
PLACES = (
    Known(flags.KUBECONFIG, "FILE", "How to reach the cluster.", "in-cluster, or ~/.kube/config"),
    Known(flags.STATE_DIR, "FOLDER", "The agent's records of its VMs and images."),
    Known(flags.USERDATA_DIR, "FOLDER", "What each guest is given, and what it reports."),
    Known(flags.VM_LOG_DIR, "FOLDER", "The output of each VM."),
    Known(flags.AGENT_LOG_LEVEL, "debug|info|warning|error", "How much is logged."),
    Known(
        flags.AGENT_LOG_FORMAT, "auto|readable|json", "How it is logged; auto looks for a terminal."
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
    ("The Node", NODE),
    ("VMs and images", VMS),
    ("What is served", SERVING),
    ("Folders, cluster and logs", PLACES),
    ("Without effect in this release", IGNORED),
)


@dataclass(frozen=True, slots=True)
class Given:
    """The values of all flags and where each one comes from: `flag`, `environment NAME` or `default`."""

    values: Mapping[str, str]
    sources: Mapping[str, str]
    repeated: Mapping[str, tuple[str, ...]]

    def text(self, flag: Flag) -> str:
        """Return the value as it was written."""
        return self.values[flag.name]

    def told(self, flag: Flag) -> str:
        """Return how to call this value in a sentence about it: by flag or variable."""
        source = self.sources[flag.name]
        return source.partition(" ")[2] if source.startswith("environment") else flag.name

    def is_default(self, flag: Flag) -> bool:
        """Tell whether nobody chose it."""
        return self.sources[flag.name] == "default"

    def number(self, flag: Flag, *, least: int = 0) -> int:
        """Return the value as a whole number."""
        text = self.text(flag)
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise BadConfiguration(
                f"{self.told(flag)} {text!r} is not a whole number from {least} on"
            )
        return int(text)

    def amount(self, flag: Flag) -> float | None:
        """Return the value as a positive number; None where nothing was given."""
        text = self.text(flag)
        if not text:
            return None
        if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) <= 0:
            raise BadConfiguration(f"{self.told(flag)} {text!r} is not a number above 0")
        return float(text)

    def is_on(self, flag: Flag) -> bool:
        """Return the value as a yes or no, in the spellings that Go knows."""
        text = self.text(flag)
        if text in {"1", "t", "T", "true", "TRUE", "True"}:
            return True
        if text in {"0", "f", "F", "false", "FALSE", "False"}:
            return False
        raise BadConfiguration(f"{self.told(flag)} {text!r} is neither true nor false")

    def choice(self, flag: Flag, *choices: str) -> str:
        """Return the value, which must be one of these."""
        text = self.text(flag)
        if text not in choices:
            raise BadConfiguration(
                f"{self.told(flag)} {text!r} is unknown; choose {' or '.join(choices)}"
            )
        return text

    def pairs(self, flag: Flag) -> dict[str, str]:
        """Return the value, written as `k=v,k=v`; blanks are skipped."""
        found = {}
        for pair in filter(None, (part.strip() for part in self.text(flag).split(","))):
            key, equals, value = pair.partition("=")
            if not (equals and key.strip()):
                raise BadConfiguration(
                    f"{self.told(flag)}: {pair!r} is not key=value; write it like zone=par-1,rack=7"
                )
            found[key.strip()] = value.strip()
        return found


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog=agent.NAME,
        usage=f"{agent.NAME} [FLAGS]\n       {agent.NAME} lease [--vm NAME] -- COMMAND",
        description="Make this Mac a Node, and each Pod on it a fresh macOS virtual machine.",
        epilog=EXAMPLES,
        formatter_class=partial(
            argparse.RawDescriptionHelpFormatter, width=WIDTH, max_help_position=34
        ),
        allow_abbrev=False,
        add_help=False,
        exit_on_error=False,
    )
    for title, known in GROUPS:
        group = made.add_argument_group(title)
        for one in known:
            _add(group, one)
    rest = made.add_argument_group("Others")
    rest.add_argument(
        "--show-settings",
        action="store_true",
        help="Print each setting, its value and its source, and exit.",
    )
    rest.add_argument("--version", action="store_true", help="Print the version and exit.")
    rest.add_argument("-h", "--help", action="help", help="Show this message and exit.")
    return made


def _add(group: argparse._ArgumentGroup, known: Known) -> None:
    notes = [f"env: {known.flag.env}"] if known.flag.env else []
    default = known.flag.default or known.default
    notes += [f"default: {default}"] if default and known.value else []
    told = f"{known.text} [{'; '.join(notes)}]" if notes else known.text
    # argparse takes a percent sign for one of its own.
    told = told.replace("%", "%%")
    if known.is_repeated:
        group.add_argument(known.flag.name, action="append", metavar=known.value, help=told)
    elif known.value:
        group.add_argument(known.flag.name, metavar=known.value, help=told)
    else:
        # A switch may also be written like --disable-vm-gc=false.
        group.add_argument(known.flag.name, nargs="?", const="true", metavar="false", help=told)


def read(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[Given, argparse.Namespace]:
    """Read a command line; BadConfiguration for a wrong one."""
    try:
        parsed, surplus = parser().parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise BadConfiguration(f"{error}; {_SEE_HELP}") from error
    if surplus:
        raise BadConfiguration(_unknown(surplus[0]))
    values, sources, repeated = {}, {}, {}
    for known in everything():
        flag = known.flag
        written = getattr(parsed, flag.name.removeprefix("--").replace("-", "_"))
        if known.is_repeated:
            repeated[flag.name] = tuple(written or ())
            written = ",".join(written) if written else None
        values[flag.name], sources[flag.name] = _value(flag, written, environment)
    return Given(values, sources, repeated), parsed


def _unknown(word: str) -> str:
    import difflib

    names = [known.flag.name for known in everything()]
    close = difflib.get_close_matches(word.partition("=")[0], names, n=1, cutoff=0.8)
    hint = f"did you mean {close[0]}?" if close else _SEE_HELP
    return f"{word!r} is unknown; {hint}"


def everything() -> Iterable[Known]:
    """Yield every flag."""
    for _, known in GROUPS:
        yield from known


def _value(flag: Flag, written: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    if written is not None:
        return written, "flag"
    if flag.env and environment.get(flag.env):
        return environment[flag.env], f"environment {flag.env}"
    return flag.default, "default"


def without_effect(given: Given) -> list[str]:
    """Return the flags that somebody gave and that do nothing here."""
    return [given.told(known.flag) for known in IGNORED if not given.is_default(known.flag)]
