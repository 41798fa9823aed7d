"""The flags of `bramley machines` about its process, agents, files and hosts; a field has the name of its flag."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bramley.api.names import flags, groups, machines
from bramley.cli.flag_groups import number, option
from bramley.cli.options import (
    TART_VERSION,
    Context,
    Format,
    Kubeconfig,
    Level,
    LogFormat,
    LogLevel,
    ShowSettings,
)
from bramley.cli.runners import HealthAddress, LeaseNamespace, MetricsAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFlags:
    """The cluster, the endpoints and the lease."""

    kubeconfig: Kubeconfig = None
    context: Context = None
    secrets_namespace: Annotated[
        str,
        option(
            "--secrets-namespace",
            "Namespace of the Secrets and Leases of Macs, and of Secrets that all Macs share.",
            "NAME",
            envvar=None,
        ),
    ] = groups.OPERATOR_NAMESPACE
    metrics_bind_address: MetricsAddress = flags.METRICS_BIND_ADDRESS.default
    health_probe_bind_address: HealthAddress = flags.HEALTH_PROBE_BIND_ADDRESS.default
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help=f"Reconcile only while holding the lease {groups.MACHINES_LEASE}, so that several replicas may run.",
        ),
    ] = True
    leader_election_namespace: LeaseNamespace = ""
    log_level: Level = LogLevel.INFO
    log_format: Format = LogFormat.AUTO
    show_settings: ShowSettings = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFlags:
    """How agents reach the cluster, and what their Nodes offer."""

    api_server_url: Annotated[
        str,
        option(
            "--api-server-url",
            "URL of the API server for agents on Macs.",
            "URL",
            envvar="CAPI_TARTKUBELET_API_SERVER_URL",
            show_default="that in kube-public/cluster-info, else that of the kubeconfig",
        ),
    ] = ""
    kubelet_client_ca_file: Annotated[
        Path | None,
        option(
            "--kubelet-client-ca-file",
            "CA certificates (PEM) of clients that may read logs and metrics from agents.",
            "FILE",
            envvar=None,
            show_default="those of the cluster",
        ),
    ] = None
    token_lifetime: Annotated[
        str,
        option(
            "--token-lifetime",
            "How long a token of an agent is valid; the agent renews it before that.",
            "TIME",
            envvar=None,
        ),
    ] = "24h"  # noqa: S105 - a duration
    tartkubelet_host_cpu: Annotated[
        int, number("--tartkubelet-host-cpu", "CPUs that a Node offers.", min=1)
    ] = 8
    tartkubelet_host_memory_mb: Annotated[
        int, number("--tartkubelet-host-memory-mb", "MiB that a Node offers.", "MIB", min=1)
    ] = 16_384
    tartkubelet_max_pods: Annotated[
        int, number("--tartkubelet-max-pods", "Pods that a Node takes.", min=1)
    ] = 2
    vm_boot_timeout: Annotated[
        str,
        option(
            "--vm-boot-timeout",
            "How long a VM may run without an address before it is replaced.",
            "TIME",
            envvar=None,
            show_default="that of the agent",
        ),
    ] = ""
    registry_credentials_secret_name: Annotated[
        str,
        option(
            "--registry-credentials-secret-name",
            "Secret with the agents' logins for registries (.dockerconfigjson), in --secrets-namespace.",
            "NAME",
            envvar=None,
            show_default="none",
        ),
    ] = ""
    agent_binds_to_address: Annotated[
        bool,
        typer.Option(
            "--agent-binds-to-address",
            help="Agents listen on the address of their Mac only, as simulated Macs need it.",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFlags:
    """The files that are sent to Macs."""

    tartkubelet_archive_path: Annotated[
        Path, option("--tartkubelet-archive-path", "Archive of the agent's code.", "FILE")
    ] = Path(machines.AGENT_ARCHIVE)
    tartkubelet_interpreter_path: Annotated[
        Path,
        option("--tartkubelet-interpreter-path", "Archive of the agent's interpreter.", "FILE"),
    ] = Path(machines.AGENT_INTERPRETER)
    tart_tarball_path: Annotated[
        Path, option("--tart-tarball-path", "Archive of tart.app.", "FILE")
    ] = Path(machines.TART_TARBALL)
    tart_version: Annotated[
        str, option("--tart-version", "Version of Tart in its archive.", "VERSION")
    ] = TART_VERSION
    node_exporter_binary_path: Annotated[
        Path | None,
        option(
            "--node-exporter-binary-path",
            "Program node_exporter for Macs. Without it none is installed.",
            "FILE",
            show_default="none",
        ),
    ] = None
    node_exporter_version: Annotated[
        str, option("--node-exporter-version", "Version of node_exporter.", "VERSION")
    ] = "1.8.2"
    actions_runner_archives: Annotated[
        Path | None,
        option(
            "--actions-runner-archives",
            "Folder with actions-runner-osx-arm64-<version>.tar.gz for builders, each with its digest in <file>.sha256.",
            "FOLDER",
            show_default="none",
        ),
    ] = None
    bandwidth_mb_per_second: Annotated[
        int,
        number(
            "--bandwidth-mb-per-second",
            "Megabytes per second that all Macs together are sent; 0 is no limit.",
            "MB",
        ),
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFlags:
    """How Macs are set up, proven, updated and released."""

    machine_max_concurrent_reconciles: Annotated[
        int,
        number(
            "--machine-max-concurrent-reconciles",
            "Macs that are set up or updated at once; reconciles are not limited by it.",
            min=1,
        ),
    ] = 4
    bootstrap_reboot_after: Annotated[
        int,
        number(
            "--bootstrap-reboot-after",
            "Failed attempts in a row after which a rented Mac is rebooted, once; 0 is never.",
        ),
    ] = 3
    bootstrap_max_attempts: Annotated[
        int,
        number(
            "--bootstrap-max-attempts",
            "Failed attempts in a row after which a machine gets another host; 0 is never.",
        ),
    ] = 8
    quarantine_after: Annotated[
        int,
        number(
            "--quarantine-after",
            "Machines that must fail on a host before it is not adopted any more; 0 is never.",
        ),
    ] = 2
    smoke_image: Annotated[
        str,
        option(
            "--smoke-image",
            "Image of the VM that proves a new Mac.",
            "IMAGE",
            envvar=None,
            show_default="that of a RunnerPool of the fleet",
        ),
    ] = ""
    proof_timeout: Annotated[
        str,
        option("--proof-timeout", "How long that VM may take to boot.", "TIME", envvar=None),
    ] = "30m"
    tartkubelet_max_update_attempts: Annotated[
        int,
        number(
            "--tartkubelet-max-update-attempts",
            "Failed updates in a row after which a Mac is left as it is; 0 is never.",
        ),
    ] = 5
    tartkubelet_terminal_retry_after: Annotated[
        str,
        option(
            "--tartkubelet-terminal-retry-after",
            "After what time such a Mac is updated again; 0 is only with another configuration.",
            "TIME",
            envvar=None,
        ),
    ] = "30m"
    max_unavailable_percent: Annotated[
        int,
        number(
            "--max-unavailable-percent",
            "Part of a fleet that may be unavailable during updates; at least one Mac.",
            "PERCENT",
            max=100,
        ),
    ] = 10
    drain_timeout: Annotated[
        str,
        option(
            "--drain-timeout",
            "How long a Mac that is released waits for its jobs.",
            "TIME",
            envvar=None,
            show_default="as long as its jobs",
        ),
    ] = ""
    host_ssh_port: Annotated[
        int,
        number(
            "--host-ssh-port", "Port of the SSH servers of rented Macs.", "PORT", min=1, max=65_535
        ),
    ] = 22
