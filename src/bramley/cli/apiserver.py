"""`bramley apiserver`: serve the embedded Kubernetes API; its subcommands handle backups and signing keys."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli import apiserver_keys, backup
from bramley.cli.options import (
    LISTEN,
    OFF,
    AuditLog,
    ClusterApi,
    Controllers,
    DataDir,
    Format,
    KubeconfigOut,
    KubeletAuthority,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    ShowSettings,
    default_data_dir,
    refuse_flags_of_server,
    show,
)

if TYPE_CHECKING:
    from bramley.app.apiserver import Settings


app = typer.Typer(name="apiserver", invoke_without_command=True, rich_markup_mode=None)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("rotate-keys")(apiserver_keys.rotate_keys)


@app.callback()
def apiserver(  # noqa: PLR0913 - one parameter per flag
    context: typer.Context,
    *,
    data_dir: DataDir = None,
    listen: Listen = LISTEN,
    kubeconfig_out: KubeconfigOut = None,
    audit_log: AuditLog = None,
    kubelet_certificate_authority: KubeletAuthority = None,
    controllers: Controllers = True,
    cluster_api: ClusterApi = False,
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
    show_settings: ShowSettings = False,
) -> None:
    """Serve the Kubernetes API until the process is stopped.

    \b
    Examples:
      bramley apiserver --data-dir ./data --listen 127.0.0.1:6443 --kubeconfig-out ./kubeconfig
      kubectl --kubeconfig ./kubeconfig get namespaces
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    if context.invoked_subcommand is not None:
        refuse_flags_of_server(context)
        return
    settings = _with_cluster_flags(
        effective(data_dir, listen, kubeconfig_out, audit_log),
        controllers=controllers,
        cluster_api=cluster_api,
        authority=kubelet_certificate_authority,
    )
    if show_settings:
        show(context, {**shown(settings, log_level, log_format), **_cluster_flags(settings)})
    else:
        _serve(settings, log_level, log_format)


def _serve(settings: Settings, level: LogLevel, form: LogFormat) -> None:
    from bramley.app import apiserver as process
    from bramley.base import log

    log.configure(level=level, form=form)
    logger = log.get(__name__)
    process.run(
        settings,
        on_serving=lambda address: logger.info(
            "Serving API", address=address, kubeconfig=settings.kubeconfig, data=settings.data_dir
        ),
    )


def _with_cluster_flags(
    settings: Settings,
    *,
    controllers: Controllers,
    cluster_api: ClusterApi,
    authority: KubeletAuthority,
) -> Settings:
    if cluster_api and not controllers:
        raise BadConfiguration(
            "--cluster-api needs the controllers of a cluster; drop --no-controllers"
        )
    chosen = dataclasses.replace(settings.controllers, enabled=controllers, cluster_api=cluster_api)
    return dataclasses.replace(
        settings,
        controllers=chosen,
        kubelet_authority=authority and authority.expanduser().absolute(),
    )


def _cluster_flags(settings: Settings) -> dict[str, object]:
    return {
        "kubelet_certificate_authority": settings.kubelet_authority or "not verified",
        "controllers": settings.controllers.enabled,
        "cluster_api": settings.controllers.cluster_api,
    }


def effective(
    data_dir: DataDir, listen: Listen, kubeconfig_out: KubeconfigOut, audit_log: AuditLog = None
) -> Settings:
    """Return the settings of the server, with defaults."""
    from bramley.app.apiserver import Settings
    from bramley.app.listen_address import Address

    folder = (data_dir or default_data_dir()).expanduser().absolute()
    kubeconfig = kubeconfig_out or folder / "kubeconfig"
    return Settings(
        folder,
        Address.parse(listen),
        kubeconfig.expanduser().absolute(),
        audit=_audit_file(audit_log, folder),
    )


def _audit_file(value: str | None, folder: Path) -> Path | None:
    if value == OFF:
        return None
    return Path(value).expanduser().absolute() if value else folder / "audit.log"


def shown(settings: Settings, level: LogLevel, form: LogFormat) -> dict[str, object]:
    """Return the effective values for `--show-settings`, by parameter name."""
    return {
        "data_dir": settings.data_dir,
        "listen": settings.listen,
        "kubeconfig_out": settings.kubeconfig,
        "audit_log": settings.audit or OFF,
        "log_level": level,
        "log_format": form,
    }
