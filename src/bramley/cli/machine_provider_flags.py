"""The flags of `bramley machines` about networks and the provider, and those of existing deployments without effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from bramley.api.names import machines
from bramley.cli.flag_groups import ignored, option


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFlags:
    """What VMs may reach, and the tailnet of Macs."""

    vm_egress_allow: Annotated[
        list[str],
        option(
            "--vm-egress-allow",
            "A private network that VMs may reach, such as 10.1.0.0/16:443,8000-8100/tcp; repeatable.",
            "CIDR[:PORTS[/PROTO]]",
            envvar=None,
            show_default="none",
        ),
    ] = field(default_factory=list)
    vm_kura_egress_cidr: Annotated[
        str,
        option(
            "--vm-kura-egress-cidr",
            "Network of the cache's Services that VMs may reach.",
            "CIDR",
            show_default="none",
        ),
    ] = ""
    vm_cluster_dns_ip: Annotated[
        str,
        option(
            "--vm-cluster-dns-ip",
            "Address of the cluster's DNS server that VMs may use.",
            "IP",
            show_default="none",
        ),
    ] = ""
    dhcp_lease_seconds: Annotated[
        int | None,
        option(
            "--dhcp-lease-seconds",
            "How long an address stays reserved for a VM that has ended.",
            "SECONDS",
            envvar=None,
            min=60,
            max=86_400,
            show_default="600",
        ),
    ] = None
    tailscale_binaries_path: Annotated[
        Path | None,
        option(
            "--tailscale-binaries-path",
            "Archive of tailscale and tailscaled. Without it, or without the key, Macs join no tailnet.",
            "FILE",
            show_default="none",
        ),
    ] = None
    tailscale_version: Annotated[
        str, option("--tailscale-version", "Version of Tailscale in its archive.", "VERSION")
    ] = "1.96.5"
    tailscale_auth_key_secret_name: Annotated[
        str,
        option(
            "--tailscale-auth-key-secret-name",
            "Secret with the key of the tailnet (auth-key), in --secrets-namespace.",
            "NAME",
            show_default="none",
        ),
    ] = ""
    tailscale_tags: Annotated[
        str,
        option("--tailscale-tags", "Tags of Macs, with commas.", "TAGS", show_default="none"),
    ] = ""
    tailscale_accept_routes: Annotated[
        bool,
        typer.Option(
            "--tailscale-accept-routes/--no-tailscale-accept-routes",
            envvar="CAPI_TAILSCALE_ACCEPT_ROUTES",
            help="Macs use the routes that others advertise in the tailnet.",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFlags:
    """Rented Macs, and the forge of builders."""

    scaleway_credentials_dir: Annotated[
        Path | None,
        option(
            "--scaleway-credentials-dir",
            "Folder with files SCW_ACCESS_KEY, SCW_SECRET_KEY and SCW_DEFAULT_PROJECT_ID, read again before each request.",
            "FOLDER",
            envvar=None,
            show_default="the variables of these names; without any, only MacHosts are reconciled",
        ),
    ] = None
    default_adopt_pool_prefix: Annotated[
        str,
        option(
            "--default-adopt-pool-prefix",
            "Prefix of the names of free hosts, for machines without one. It switches on the sweep of hosts without an owner.",
            "PREFIX",
            show_default="none",
        ),
    ] = ""
    orphan_reclaim_claim_name_prefix: Annotated[
        str,
        option(
            "--orphan-reclaim-claim-name-prefix",
            "Prefix of the names of hosts that the sweep may put back into the pool. Without it they are only counted.",
            "PREFIX",
            show_default="none",
        ),
    ] = ""
    orphan_reclaim_zones: Annotated[
        str,
        option("--orphan-reclaim-zones", "Zones of the sweep, with commas.", "ZONES"),
    ] = machines.DEFAULT_ZONE
    orphan_reclaim_interval: Annotated[
        str,
        option(
            "--orphan-reclaim-interval",
            "How long a host must have no owner before it is put back.",
            "TIME",
            envvar=None,
        ),
    ] = "15m"
    fleet_spread_deployment: Annotated[
        str,
        option(
            "--fleet-spread-deployment",
            "Deployment that is restarted when the set of ready Macs changes, so that its Pods spread.",
            "NAME",
            show_default="none",
        ),
    ] = ""
    fleet_spread_namespace: Annotated[
        str,
        option(
            "--fleet-spread-namespace",
            "Namespace of that Deployment.",
            "NAME",
            show_default="that of --secrets-namespace",
        ),
    ] = ""
    github_api_url: Annotated[
        str,
        option(
            "--github-api-url",
            "GitHub's API; of GitHub Enterprise Server https://HOST/api/v3.",
            "URL",
            envvar=None,
        ),
    ] = "https://api.github.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFlags:
    """Flags of existing deployments that have no effect here, and the one that is replaced."""

    tartkubelet_binary_path: Annotated[
        str,
        option(
            "--tartkubelet-binary-path",
            "Refused: --tartkubelet-archive-path and --tartkubelet-interpreter-path replace it.",
            "FILE",
            show_default=False,
        ),
    ] = ""
    node_identity_cluster_role: Annotated[str, ignored("--node-identity-cluster-role")] = ""
    log_shipper_binary_path: Annotated[str, ignored("--log-shipper-binary-path")] = ""
    log_ship_url: Annotated[str, ignored("--log-ship-url")] = ""
    log_ship_env: Annotated[str, ignored("--log-ship-env")] = ""
    ssh_ingress_allow_cidrs: Annotated[str, ignored("--ssh-ingress-allow-cidrs")] = ""
    vm_cache_pn_name: Annotated[str, ignored("--vm-cache-pn-name")] = ""
    vm_cache_pn_cidr: Annotated[str, ignored("--vm-cache-pn-cidr")] = ""
    runner_cache_volume_gib: Annotated[str, ignored("--runner-cache-volume-gib")] = ""
    cache_volume_master_cap_gib: Annotated[str, ignored("--cache-volume-master-cap-gib")] = ""
    cache_volume_cas_gib: Annotated[str, ignored("--cache-volume-cas-gib")] = ""
    tailscale_egress_proxy_group: Annotated[str, ignored("--tailscale-egress-proxy-group")] = ""
    tailscale_egress_namespace: Annotated[str, ignored("--tailscale-egress-namespace")] = ""
    tailscale_egress_magicdns_suffix: Annotated[
        str, ignored("--tailscale-egress-magicdns-suffix")
    ] = ""
