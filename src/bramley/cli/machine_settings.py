"""The settings of `bramley machines` from its flags; errors name the flag."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bramley.api.host_settings import HostSettings
from bramley.api.names import machines as names
from bramley.app.agent_access import Cluster
from bramley.app.machine_artifacts import ArtifactSettings, Program
from bramley.app.machines import HostOptions, ScalewayCredentials, Settings
from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.cli.options import duration
from bramley.cli.runners import probes
from bramley.host.grammar import Grammar
from bramley.host.spec import AllowedNetwork, Egress
from bramley.host.steps.firewall import Firewall
from bramley.machines import controllers, drift, fleet_spread, host_sweep, mac_draft, recovery
from bramley.machines.host_configuration import TailnetSettings
from bramley.runtime.manager import ManagerSettings

if TYPE_CHECKING:
    from bramley.cli.machine_flags import HostFlags
    from bramley.cli.machine_provider_flags import NetworkFlags, OldFlags, ProviderFlags
    from bramley.cli.machines import Flags

_NETWORK_FLAGS = {
    "cache_network": "--vm-kura-egress-cidr",
    "cluster_dns": "--vm-cluster-dns-ip",
    "allow": "--vm-egress-allow",
}
_MAX_BOOT_SECONDS = 86_400
_NAME = Grammar(
    re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"),
    253,
    "the name of an object: lower-case letters, digits, - and .",
)
_PREFIX = Grammar(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"),
    63,
    f"the beginning of a name, such as {names.POOL_PREFIX}",
)
_ZONE = Grammar(re.compile(r"[a-z]+-[a-z]+-[0-9]+"), 32, "a zone, such as fr-par-1")
_IMAGE = Grammar(
    re.compile(r"[A-Za-z0-9]\S*"), 1024, "an image, such as ghcr.io/example/macos-runner:1"
)


def settings(given: Flags) -> Settings:
    """Return the settings of the process."""
    if given.old.tartkubelet_binary_path:
        raise BadConfiguration(
            "--tartkubelet-binary-path (CAPI_TARTKUBELET_BINARY_PATH) is replaced, because the agent comes as two archives; "
            "give --tartkubelet-archive-path and --tartkubelet-interpreter-path instead"
        )
    _require_names(given)
    process = given.process
    folder = given.provider.scaleway_credentials_dir
    return Settings(
        artifacts=_artifacts(given),
        cluster=Cluster(process.kubeconfig, process.context),
        scaleway=ScalewayCredentials(os.environ, folder),
        hosts=_hosts(given),
        machines=_controllers(given),
        github_api_url=given.provider.github_api_url,
        manager=ManagerSettings(probes=tuple(probes(dataclasses.asdict(process)))),
        leader_elect=process.leader_elect,
        lease_namespace=process.leader_election_namespace,
    )


def _require_names(given: Flags) -> None:
    """Refuse names that the API or the provider would refuse only when they are used."""
    process, agents, provider = given.process, given.agents, given.provider
    values = [
        ("--secrets-namespace", _NAME, process.secrets_namespace),
        ("--leader-election-namespace", _NAME, process.leader_election_namespace),
        ("--registry-credentials-secret-name", _NAME, agents.registry_credentials_secret_name),
        ("--tailscale-auth-key-secret-name", _NAME, given.networks.tailscale_auth_key_secret_name),
        ("--fleet-spread-deployment", _NAME, provider.fleet_spread_deployment),
        ("--fleet-spread-namespace", _NAME, provider.fleet_spread_namespace),
        ("--default-adopt-pool-prefix", _PREFIX, provider.default_adopt_pool_prefix),
        ("--orphan-reclaim-claim-name-prefix", _PREFIX, provider.orphan_reclaim_claim_name_prefix),
        *(
            ("--orphan-reclaim-zones", _ZONE, each)
            for each in _listed(provider.orphan_reclaim_zones)
        ),
        ("--smoke-image", _IMAGE, given.hosts.smoke_image),
    ]
    causes = [
        cause for flag, grammar, text in values if text for cause in grammar.check(flag, text)
    ]
    if causes:
        raise BadConfiguration("; ".join(each.message for each in causes))


def without_effect(old: OldFlags) -> Iterator[str]:
    """Yield the flags that are given and have no effect."""
    for each in dataclasses.fields(old):
        # Existing deployments set numbers to 0 to leave a feature out.
        if getattr(old, each.name) not in {"", "0"}:
            yield "--" + each.name.replace("_", "-")


def _artifacts(given: Flags) -> ArtifactSettings:
    files, networks = given.files, given.networks
    exporter, tailscale = files.node_exporter_binary_path, networks.tailscale_binaries_path
    return ArtifactSettings(
        agent=files.tartkubelet_archive_path,
        interpreter=files.tartkubelet_interpreter_path,
        tart=Program(files.tart_tarball_path, files.tart_version),
        tailscale=Program(tailscale, networks.tailscale_version) if tailscale else None,
        node_exporter=Program(exporter, files.node_exporter_version) if exporter else None,
        actions_runners=files.actions_runner_archives,
        megabytes_per_second=files.bandwidth_mb_per_second,
    )


def _hosts(given: Flags) -> HostOptions:
    agents, networks = given.agents, given.networks
    settings = HostSettings(
        registry_credentials_secret_name=agents.registry_credentials_secret_name,
        vm_boot_timeout_seconds=_boot_seconds(agents.vm_boot_timeout),
        dhcp_lease_seconds=networks.dhcp_lease_seconds,
    )
    return HostOptions(
        cpu=agents.tartkubelet_host_cpu,
        memory_mb=agents.tartkubelet_host_memory_mb,
        max_pods=agents.tartkubelet_max_pods,
        settings=settings,
        egress=_egress(networks),
        tailnet=_tailnet(networks),
        token_lifetime=duration(agents.token_lifetime, option="--token-lifetime"),
        binds_to_address=agents.agent_binds_to_address,
        api_server_url=agents.api_server_url,
        client_authority_file=agents.kubelet_client_ca_file,
    )


def _boot_seconds(text: str) -> int | None:
    if not text:
        return None
    seconds = duration(text, option="--vm-boot-timeout").total_seconds()
    if not 1 <= seconds <= _MAX_BOOT_SECONDS:
        raise BadConfiguration(f"--vm-boot-timeout {text!r} must be from 1s to 24h")
    return int(seconds)


def _egress(networks: NetworkFlags) -> Egress:
    allowed = tuple(map(_allowed, networks.vm_egress_allow))
    try:
        egress = Egress(
            cache_network=networks.vm_kura_egress_cidr,
            cluster_dns=networks.vm_cluster_dns_ip,
            allow=allowed,
        )
        # Which networks may be allowed at all.
        Firewall(egress)
    except InvalidSpec as error:
        messages = (_with_flag(cause.field, cause.message) for cause in error.causes)
        raise BadConfiguration("; ".join(messages)) from error
    return egress


def _with_flag(field: str, message: str) -> str:
    name = field.partition("[")[0]
    return message.replace(name, _NETWORK_FLAGS.get(name, name), 1)


def _allowed(text: str) -> AllowedNetwork:
    """Parse a network such as 10.1.0.0/16, 10.1.0.0/16:443,8000-8100 or 10.1.0.0/16:53/udp."""
    cidr, colon, rest = text.partition(":")
    ports, _, protocol = rest.partition("/")
    if colon and not ports:
        raise BadConfiguration(
            f"--vm-egress-allow {text!r} has no ports; write it like 10.1.0.0/16 or 10.1.0.0/16:443,8000-8100/tcp"
        )
    found = tuple(ports.split(",")) if ports else None
    return AllowedNetwork(cidr=cidr, ports=found, protocol=protocol)


def _tailnet(networks: NetworkFlags) -> TailnetSettings | None:
    name = networks.tailscale_auth_key_secret_name
    # As for existing deployments, either of the two leaves it out.
    if not (name and networks.tailscale_binaries_path):
        return None
    return TailnetSettings(
        auth_key_secret_name=name,
        tags=_listed(networks.tailscale_tags),
        accept_routes=networks.tailscale_accept_routes,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _controllers(given: Flags) -> controllers.Settings:
    hosts, provider = given.hosts, given.provider
    return controllers.Settings(
        secrets_namespace=given.process.secrets_namespace,
        decisions=_decisions(hosts),
        smoke_image=hosts.smoke_image,
        operations=hosts.machine_max_concurrent_reconciles,
        default_pool_prefix=provider.default_adopt_pool_prefix,
        ssh_port=hosts.host_ssh_port,
        quarantine_after=hosts.quarantine_after,
        sweep=_sweep(provider),
        spread=_spread(given),
    )


def _decisions(hosts: HostFlags) -> mac_draft.Settings:
    text, after = hosts.drain_timeout, hosts.tartkubelet_terminal_retry_after
    proof_timeout = duration(hosts.proof_timeout, option="--proof-timeout")
    if not proof_timeout:
        raise BadConfiguration("--proof-timeout must be longer than 0s; no VM boots in no time")
    return mac_draft.Settings(
        recovery=recovery.Settings(
            reboot_after=hosts.bootstrap_reboot_after, max_attempts=hosts.bootstrap_max_attempts
        ),
        drift=drift.Settings(
            max_unavailable_percent=hosts.max_unavailable_percent,
            max_attempts=hosts.tartkubelet_max_update_attempts,
            terminal_retry_after=duration(after, option="--tartkubelet-terminal-retry-after"),
        ),
        proof_timeout=proof_timeout,
        drain_timeout=duration(text, option="--drain-timeout") if text else None,
    )


def _sweep(provider: ProviderFlags) -> host_sweep.Settings:
    interval = provider.orphan_reclaim_interval
    return host_sweep.Settings(
        interval=duration(interval, option="--orphan-reclaim-interval"),
        zones=_listed(provider.orphan_reclaim_zones),
        claim_name_prefix=provider.orphan_reclaim_claim_name_prefix,
        default_pool_prefix=provider.default_adopt_pool_prefix,
    )


def _spread(given: Flags) -> fleet_spread.Settings | None:
    provider = given.provider
    if not provider.fleet_spread_deployment:
        return None
    namespace = provider.fleet_spread_namespace or given.process.secrets_namespace
    return fleet_spread.Settings(provider.fleet_spread_deployment, namespace)
