"""Options that several commands share, their defaults, output formats, and what `--show-settings` prints.

A flag overrides its environment variable, which overrides the default.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli.failures import LOG_LEVEL_VARIABLE

LISTEN = "127.0.0.1:6443"
OFF = "off"
DATA_DIR = "BRAMLEY_DATA_DIR"
MACS = 3
# The version that was tried.
TART_VERSION = "2.32.1"
# Each Mac has an agent, a process of about 50 MB, and up to two simulated VMs.
MAX_MACS = 50


_DURATION = re.compile(r"0|(?:\d+[smhd])+")
_DURATION_PART = re.compile(r"(\d+)([smhd])")
_DURATION_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class LogLevel(StrEnum):
    """Lowest severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Format of log lines."""

    AUTO = "auto"
    READABLE = "readable"
    JSON = "json"


class Output(StrEnum):
    """Format of results."""

    TEXT = "text"
    JSON = "json"


class ManifestOutput(StrEnum):
    """Format of manifests."""

    YAML = "yaml"
    JSON = "json"


OutputFormat = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
ManifestFormat = Annotated[ManifestOutput, typer.Option("--output", "-o", help="Output format.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar=DATA_DIR,
        help="Folder for the database, certificates and token hashes; created if missing, with access for its owner only.",
        show_default="~/.local/share/bramley, on macOS ~/Library/Application Support/Bramley",
        metavar="FOLDER",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        envvar="BRAMLEY_LISTEN",
        help="Address to listen on; port 0 selects a free port.",
        metavar="HOST:PORT",
    ),
]
KubeconfigOut = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig-out",
        envvar="BRAMLEY_KUBECONFIG_OUT",
        help="File for the administrator's kubeconfig, readable by its owner only.",
        show_default="kubeconfig in the data folder",
        metavar="FILE",
    ),
]
Controllers = Annotated[
    bool,
    typer.Option(
        "--controllers/--no-controllers",
        envvar="BRAMLEY_CONTROLLERS",
        help="Run the controllers of a cluster, such as the scheduler and garbage collector, or serve the API alone.",
    ),
]
ClusterApi = Annotated[
    bool,
    typer.Option(
        "--cluster-api",
        envvar="BRAMLEY_CLUSTER_API",
        help="Install the kinds of Cluster API and run small controllers for them; not beside Cluster API's core manager.",
    ),
]
AuditLog = Annotated[
    str | None,
    typer.Option(
        "--audit-log",
        envvar="BRAMLEY_AUDIT_LOG",
        help="File for the audit log, or off; request and response bodies are never logged.",
        show_default="audit.log in the data folder",
        metavar="FILE|off",
    ),
]
KubeletAuthority = Annotated[
    Path | None,
    typer.Option(
        "--kubelet-certificate-authority",
        envvar="BRAMLEY_KUBELET_CERTIFICATE_AUTHORITY",
        help="Certificate authority (PEM) that verifies the serving certificates of agents when logs and stats are read from them.",
        show_default="not verified",
        metavar="FILE",
    ),
]
Macs = Annotated[
    int | None,
    typer.Option(
        "--macs",
        envvar="BRAMLEY_MACS",
        min=0,
        max=MAX_MACS,
        help="Number of simulated Macs, each with a real agent; 0 starts none.",
        show_default=f"{MACS}, or 0 with --mac",
        metavar="COUNT",
    ),
]
Bootstrap = Annotated[
    bool,
    typer.Option(
        "--bootstrap",
        envvar="BRAMLEY_BOOTSTRAP",
        help="Rent bare simulated Macs and a builder from a simulated Scaleway, and bootstrap them over SSH; needs bubblewrap.",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig.",
        show_default="its current context",
        metavar="NAME",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Kubeconfig of the cluster.",
        show_default="as kubectl: $KUBECONFIG, the Pod's ServiceAccount, ~/.kube/config",
        metavar="FILE",
    ),
]
StoppedFolder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data folder of a stopped server.", metavar="FOLDER"),
]
Level = Annotated[
    LogLevel,
    typer.Option("--log-level", envvar=LOG_LEVEL_VARIABLE, help="Lowest severity that is logged."),
]
Format = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="BRAMLEY_LOG_FORMAT",
        help="Format of log lines; auto is readable on a terminal and json otherwise.",
    ),
]
ShowSettings = Annotated[
    bool,
    typer.Option("--show-settings", help="Print each setting with its value and source, and exit."),
]


def default_data_dir() -> Path:
    """Return the default data folder of this user on this platform."""
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "Bramley"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else _home() / ".local" / "share") / "bramley"


def data_dir() -> Path:
    """Return the data folder for commands without a flag for it."""
    configured = os.environ.get(DATA_DIR)
    return Path(configured).expanduser() if configured else default_data_dir()


def home() -> Path | None:
    """Return the home folder of this user; None without one, as in many containers."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _home() -> Path:
    folder = home()
    if folder is None:
        raise BadConfiguration(
            f"this user has no home folder for the data; set {DATA_DIR} to a folder, or set HOME"
        )
    return folder


def refuse_both_servers(
    kubeconfig: Path | None, context: str | None, stopped_folder: Path | None
) -> None:
    """Refuse a command line that names a running server and the data folder of a stopped one."""
    if stopped_folder is not None and (kubeconfig is not None or context is not None):
        raise BadConfiguration(
            "--data-dir is for a stopped server and --kubeconfig for a running one; use one of them"
        )


def refuse_flags_of_server(context: typer.Context) -> None:
    """Raise if a flag of a server precedes its subcommand, which would ignore it."""
    command = context.invoked_subcommand
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            flag = "--" + name.replace("_", "-")
            raise BadConfiguration(
                f"{flag} is a flag of the server, not of {command!r}; "
                f"for its flags run: {context.command_path} {command} -h"
            )


def to_json(value: object) -> str:
    """Return a value as indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value)).decode()


def duration(text: str, *, option: str) -> timedelta:
    """Parse a duration such as 30s, 5m, 1h30m or 7d."""
    if _DURATION.fullmatch(text) is None:
        raise BadConfiguration(
            f"{option} {text!r} is not a duration; write it like 30s, 5m, 24h or 7d"
        )
    try:
        parts = (
            timedelta(**{_DURATION_UNITS[unit]: int(count)})
            for count, unit in _DURATION_PART.findall(text)
        )
        return sum(parts, timedelta())
    except OverflowError:
        raise BadConfiguration(f"{option} {text!r} is too long; use at most a year") from None


def show(context: typer.Context, effective: Mapping[str, object]) -> None:
    """Print the effective settings of a command, one per line."""
    rows = [(name, str(value), _source(context, name)) for name, value in effective.items()]
    names = max(len(name) for name, _, _ in rows) + 2
    values = max(len(value) for _, value, _ in rows)
    for name, value, source in rows:
        flag = "--" + name.replace("_", "-")
        typer.echo(f"{flag:<{names}}  {value:<{values}}  {source}")


def _source(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    if source is None or source.name.startswith("DEFAULT"):
        return "default"
    if source.name == "ENVIRONMENT":
        variables = {each.name: each.envvar for each in context.command.params}
        return f"environment {variables.get(name)}"
    return "flag"


def _show_version(requested: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if requested:
        from importlib.metadata import version

        typer.echo(f"bramley {version('bramley')}")
        raise typer.Exit


def bramley(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Run fleets of Apple-silicon Macs on Kubernetes."""
