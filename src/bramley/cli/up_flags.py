"""The flags of `bramley up`, in groups; a field has the name of its flag."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bramley.cli.host_connection import AskPassword, PasswordFile
from bramley.cli.options import (
    LISTEN,
    TART_VERSION,
    AuditLog,
    Bootstrap,
    DataDir,
    Format,
    KubeconfigOut,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    Macs,
    ShowSettings,
)


def _file(name: str, help: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        name, help=help, metavar="FILE", show_default="none"
    )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """The server."""

    data_dir: DataDir = None
    listen: Listen = LISTEN
    kubeconfig_out: KubeconfigOut = None
    audit_log: AuditLog = None
    log_level: Level = LogLevel.WARNING
    log_format: Format = LogFormat.AUTO
    show_settings: ShowSettings = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMacFlags:
    """Simulated Macs."""

    macs: Macs = None
    bootstrap: Bootstrap = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMacFlags:
    """Macs that you own."""

    mac: Annotated[
        list[str] | None,
        typer.Option(
            "--mac",
            help="A Mac to set up over SSH, which becomes a Node; repeatable. It must reach the API server.",
            metavar="USER@HOST[:PORT]",
            show_default="none",
        ),
    ] = None
    identity: Annotated[
        Path | None,
        typer.Option(
            "--identity",
            "-i",
            help="Ed25519 key without a passphrase to log in with.",
            metavar="FILE",
            show_default="none",
        ),
    ] = None
    password_file: PasswordFile = None
    ask_password: AskPassword = False
    tart_tarball_path: Annotated[
        Path | None, _file("--tart-tarball-path", "Archive of tart.app, for --mac.")
    ] = None
    tart_version: Annotated[
        str,
        typer.Option("--tart-version", help="Version of Tart in its archive.", metavar="VERSION"),
    ] = TART_VERSION
    tartkubelet_archive_path: Annotated[
        Path | None, _file("--tartkubelet-archive-path", "Archive of the agent's code, for --mac.")
    ] = None
    tartkubelet_interpreter_path: Annotated[
        Path | None,
        _file("--tartkubelet-interpreter-path", "Archive of the agent's interpreter, for --mac."),
    ] = None
