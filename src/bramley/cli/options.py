"""Options that several commands share, where their defaults are, and what `--show-settings` prints.

A flag wins over its environment variable, which wins over the default.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli.failing import LEVEL

LISTEN = "127.0.0.1:6443"
OFF = "off"
DATA_DIR = "BRAMLEY_DATA_DIR"
MACS = 3
# Each has an agent, a real process of some 50 MB, and up to two VMs.
MOST_MACS = 50


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How it is logged."""

    AUTO = "auto"
    READABLE = "readable"
    JSON = "json"


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar=DATA_DIR,
        help="Folder for the database, certificates and token hashes; made if missing, closed to other users.",
        show_default="~/.local/share/bramley, on macOS ~/Library/Application Support/Bramley",
        metavar="FOLDER",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        envvar="BRAMLEY_LISTEN",
        help="Address to serve on; port 0 takes a free one.",
        metavar="HOST:PORT",
    ),
]
KubeconfigOut = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig-out",
        envvar="BRAMLEY_KUBECONFIG_OUT",
        help="File to write the administrator's kubeconfig to, readable by its owner only.",
        show_default="kubeconfig in the data folder",
        metavar="FILE",
    ),
]
Controllers = Annotated[
    bool,
    typer.Option(
        "--controllers/--no-controllers",
        envvar="BRAMLEY_CONTROLLERS",
        help="Run a cluster's controllers beside the API, such as scheduler and garbage collection, or serve the bare API.",
    ),
]
AuditLog = Annotated[
    str | None,
    typer.Option(
        "--audit-log",
        envvar="BRAMLEY_AUDIT_LOG",
        help="File for the audit log, or off; it never holds a body.",
        show_default="audit.log in the data folder",
        metavar="FILE|off",
    ),
]
KubeletAuthority = Annotated[
    Path | None,
    typer.Option(
        "--kubelet-certificate-authority",
        envvar="BRAMLEY_KUBELET_CERTIFICATE_AUTHORITY",
        help="Authority (PEM) by which the certificates of agents are checked when their logs and figures are asked for.",
        show_default="they are not checked",
        metavar="FILE",
    ),
]
Macs = Annotated[
    int,
    typer.Option(
        "--macs",
        envvar="BRAMLEY_MACS",
        min=0,
        max=MOST_MACS,
        help="How many simulated Macs join, each with a real agent; 0 is none.",
        metavar="COUNT",
    ),
]
Bootstrap = Annotated[
    bool,
    typer.Option(
        "--bootstrap",
        envvar="BRAMLEY_BOOTSTRAP",
        help="Let the simulated Macs begin bare, each behind an SSH server, and make them Nodes over it; needs bubblewrap.",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig.",
        show_default="its current one",
        metavar="NAME",
    ),
]
Level = Annotated[
    LogLevel,
    typer.Option("--log-level", envvar=LEVEL, help="How much is logged."),
]
Format = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="BRAMLEY_LOG_FORMAT",
        help="Readable lines or JSON; auto looks whether standard error is a terminal.",
    ),
]
ShowSettings = Annotated[
    bool,
    typer.Option("--show-settings", help="Print each setting, its value and its source, and exit."),
]


def default_data_dir() -> Path:
    """Return where this user's data belongs on this platform."""
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "Bramley"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else _home() / ".local" / "share") / "bramley"


def data_dir() -> Path:
    """Return the data folder where a command has no flag for it."""
    chosen = os.environ.get(DATA_DIR)
    return Path(chosen).expanduser() if chosen else default_data_dir()


def home() -> Path | None:
    """Return this user's own folder; None for one who has none, as in many a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _home() -> Path:
    found = home()
    if found is None:
        raise BadConfiguration(
            f"this user has no home folder to keep data in; name a folder with {DATA_DIR}, or set HOME"
        )
    return found


def show(context: typer.Context, effective: Mapping[str, object]) -> None:
    """Print the effective settings of a command, one a line."""
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
        return f"environment BRAMLEY_{name.upper()}"
    return "flag"
