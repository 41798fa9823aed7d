"""`bramley runners`: run the controller of RunnerPools, with the flags of existing deployments."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bramley.api.names import flags, groups, runners
from bramley.base.errors import BadConfiguration
from bramley.cli.options import (
    OFF,
    Context,
    Format,
    Kubeconfig,
    Level,
    LogFormat,
    LogLevel,
    ShowSettings,
    show,
)

if TYPE_CHECKING:
    from bramley.app.runners import Settings
    from bramley.runtime.probes import ProbeSettings

_LINUX_ONLY = "Accepted for existing deployments; it has no effect on macOS pools."
_IGNORED = ("dispatch_internal_url", "dind_image", "registry_mirror_url")
_DISABLED = frozenset({"", "0", OFF})
_UNSET = (None, "")

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        envvar=runners.ENV_NAMESPACE,
        help="Namespace of the RunnerPools and their Pods.",
        metavar="NAME",
    ),
]
DispatchUrl = Annotated[
    str,
    typer.Option(
        "--dispatch-url",
        envvar=runners.ENV_DISPATCH_URL,
        help="URL that guests poll for jobs. Without it the controller deletes the idle Pods that a roll drains itself.",
        show_default="none",
        metavar="URL",
    ),
]
ScalingSignalsUrl = Annotated[
    str,
    typer.Option(
        "--scaling-signals-url",
        help="URL of the demand for runners. Without it pools are not scaled.",
        show_default="none",
        metavar="URL",
    ),
]
SessionsUrl = Annotated[
    str,
    typer.Option(
        "--sessions-url",
        help="URL that stopped Pods are reported to. Without it they are not reported.",
        show_default="none",
        metavar="URL",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="File with the token for calls to these URLs; read again for each call.",
        show_default="the token of the Pod's ServiceAccount, if there is one",
        metavar="FILE",
    ),
]
MetricsAddress = Annotated[
    str,
    typer.Option(
        "--metrics-bind-address",
        help="Address of Prometheus metrics; 0 or off disables it. Without a host, as in :8080, it listens on all interfaces.",
        metavar="HOST:PORT",
    ),
]
HealthAddress = Annotated[
    str,
    typer.Option(
        "--health-probe-bind-address",
        help="Address of /healthz and /readyz; 0 or off disables it.",
        metavar="HOST:PORT",
    ),
]
LeaderElect = Annotated[
    bool,
    typer.Option(
        "--leader-elect/--no-leader-elect",
        help=f"Reconcile only while holding the lease {groups.RUNNERS_LEASE}, so that several replicas may run.",
    ),
]
LeaseNamespace = Annotated[
    str,
    typer.Option(
        "--leader-election-namespace",
        help="Namespace of the lease.",
        show_default="the namespace of this Pod, or of the kubeconfig's context",
        metavar="NAME",
    ),
]
ClusterDnsIp = Annotated[
    str,
    typer.Option(
        "--cluster-dns-ip",
        help="Address of the cluster's DNS server, for guests.",
        show_default="none",
        metavar="IP",
    ),
]
ClusterDomain = Annotated[
    str,
    typer.Option(
        "--cluster-domain", help="DNS domain of the cluster, for guests.", metavar="DOMAIN"
    ),
]
DispatchInternalUrl = Annotated[
    str,
    typer.Option("--dispatch-internal-url", help=_LINUX_ONLY, show_default=False, metavar="URL"),
]
DindImage = Annotated[
    str, typer.Option("--dind-image", help=_LINUX_ONLY, show_default=False, metavar="IMAGE")
]
RegistryMirrorUrl = Annotated[
    str,
    typer.Option("--registry-mirror-url", help=_LINUX_ONLY, show_default=False, metavar="URL"),
]


def runners_controller(  # noqa: PLR0913 - one parameter per flag
    call: typer.Context,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = groups.RUNNERS_NAMESPACE,
    dispatch_url: DispatchUrl = "",
    scaling_signals_url: ScalingSignalsUrl = "",
    sessions_url: SessionsUrl = "",
    token_file: TokenFile = None,
    metrics_bind_address: MetricsAddress = flags.METRICS_BIND_ADDRESS.default,
    health_probe_bind_address: HealthAddress = flags.HEALTH_PROBE_BIND_ADDRESS.default,
    leader_elect: LeaderElect = True,
    leader_election_namespace: LeaseNamespace = "",
    cluster_dns_ip: ClusterDnsIp = "",
    cluster_domain: ClusterDomain = "cluster.local",
    dispatch_internal_url: DispatchInternalUrl = "",
    dind_image: DindImage = "",
    registry_mirror_url: RegistryMirrorUrl = "",
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
    show_settings: ShowSettings = False,
) -> None:
    """Run the controller of RunnerPools: it keeps their runners warm, and rolls new images.

    The cluster needs the CustomResourceDefinitions, and the controller the permissions in examples/runners-rbac.yaml.
    SIGTERM stops it; runners keep running.

    \b
    Examples:
      bramley runners --kubeconfig ./kubeconfig --namespace default --metrics-bind-address 127.0.0.1:8080
      bramley runners --dispatch-url https://example.com/api/internal/runners/dispatch
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    values = {**locals()}
    del values["call"], values["show_settings"]
    settings = _settings(values)
    if show_settings:
        show(call, {name: "none" if value in _UNSET else value for name, value in values.items()})
    else:
        _run(settings, values)


def _run(settings: Settings, values: Mapping[str, Any]) -> None:
    from bramley.app import runners as process
    from bramley.base import log

    log.configure(level=values["log_level"], form=values["log_format"])
    logger = log.get(__name__)
    for name in _IGNORED:
        if values[name]:
            logger.warning("Flag has no effect on macOS pools", flag="--" + name.replace("_", "-"))
    namespace = settings.pools.namespace
    asyncio.run(
        process.run(
            settings,
            on_leading=lambda: logger.info("Started pool controller", namespace=namespace),
        )
    )


def _settings(values: Mapping[str, Any]) -> Settings:
    from bramley.app.agent_access import Cluster
    from bramley.app.runners import Settings
    from bramley.kube.config_loader import POD_FILES
    from bramley.runners import controllers
    from bramley.runners.dispatch_client import DispatchSettings
    from bramley.runners.pod_template import TemplateSettings

    of_pod = POD_FILES / "token"
    template = TemplateSettings(
        values["dispatch_url"], values["cluster_dns_ip"], values["cluster_domain"]
    )
    return Settings(
        cluster=Cluster(values["kubeconfig"], values["context"]),
        pools=controllers.Settings(values["namespace"], template),
        dispatch=DispatchSettings(
            scaling_signals_url=values["scaling_signals_url"],
            sessions_url=values["sessions_url"],
            token_file=values["token_file"] or (of_pod if of_pod.exists() else None),
        ),
        probes=tuple(probes(values)),
        leader_elect=values["leader_elect"],
        lease_namespace=values["leader_election_namespace"],
    )


def probes(values: Mapping[str, Any]) -> Iterator[ProbeSettings]:
    """Yield the endpoints; metrics and health on the same address are one of them."""
    from bramley.runtime.probes import ProbeSettings

    metrics = _address("--metrics-bind-address", values["metrics_bind_address"])
    health = _address("--health-probe-bind-address", values["health_probe_bind_address"])
    if metrics is not None and metrics == health and metrics[1]:
        yield ProbeSettings(*metrics)
        return
    if metrics is not None:
        yield ProbeSettings(*metrics, health=False)
    if health is not None:
        yield ProbeSettings(*health, metrics=False)


def _address(option: str, text: str) -> tuple[str, int] | None:
    """Parse an address such as :8080, which means all interfaces, or 127.0.0.1:8080; None if it is disabled."""
    if text in _DISABLED:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdigit() and int(port) <= 65535
    if not (colon and is_number and (bare != host or ":" not in host)):
        raise BadConfiguration(
            f"{option} {text!r} is not host:port; write it like 127.0.0.1:8080, :8080, or off to disable it"
        )
    return bare, int(port)
