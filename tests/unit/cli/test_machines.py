"""The flags of `bramley machines`: names of existing deployments, values, and errors that name the flag."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from bramley.app.machine_artifacts import Program
from bramley.app.machines import Settings
from bramley.cli import machine_settings, main
from bramley.cli.machine_flags import AgentFlags, FileFlags, HostFlags, ProcessFlags
from bramley.cli.machine_provider_flags import NetworkFlags, OldFlags, ProviderFlags
from bramley.cli.machines import Flags
from bramley.host.spec import AllowedNetwork

Captured = pytest.CaptureFixture[str]
# As a chart of the existing provider passes them.
EXISTING = (
    "--metrics-bind-address=:8080",
    "--health-probe-bind-address=:8081",
    "--leader-elect=true",
    "--secrets-namespace=tuist",
    "--node-identity-cluster-role=tart-kubelet",
    "--tart-tarball-path=/opt/tart/tart.tar.gz",
    "--tailscale-binaries-path=/opt/tailscale/tailscale-darwin-arm64.tar.gz",
    "--tailscale-auth-key-secret-name=key",
    "--tailscale-tags=tag:a,tag:b",
    "--tailscale-accept-routes=false",
    "--vm-kura-egress-cidr=10.128.0.0/12",
    "--vm-cluster-dns-ip=10.128.0.10",
    "--runner-cache-volume-gib=0",
    "--tartkubelet-host-cpu=8",
    "--tartkubelet-host-memory-mb=14336",
    "--tartkubelet-max-pods=3",
    "--tartkubelet-max-update-attempts=5",
    "--tartkubelet-terminal-retry-after=30m",
    "--bootstrap-reboot-after=3",
    "--bootstrap-max-attempts=8",
    "--machine-max-concurrent-reconciles=4",
    "--fleet-spread-deployment=processor",
    "--tailscale-egress-proxy-group=macs",
    "--default-adopt-pool-prefix=tuist-pool-",
    "--orphan-reclaim-claim-name-prefix=tuist-tuist-",
    "--orphan-reclaim-zones=fr-par-1,fr-par-3",
    "--orphan-reclaim-interval=1h30m",
)


def settings(*groups: object) -> Settings:
    """Return the settings of these groups, and of the defaults of the others."""
    defaults = {
        "process": ProcessFlags(),
        "agents": AgentFlags(),
        "files": FileFlags(),
        "hosts": HostFlags(),
        "networks": NetworkFlags(),
        "provider": ProviderFlags(),
        "old": OldFlags(),
    }
    names = {type(value): name for name, value in defaults.items()}
    given = {names[type(group)]: group for group in groups}
    return machine_settings.settings(Flags(**{**defaults, **given}))  # type: ignore[arg-type]


def shown(capsys: Captured, *arguments: str) -> dict[str, str]:
    """Return the effective value of each flag."""
    assert main.run(["machines", "--show-settings", *arguments]) == 0
    rows = (line.split() for line in capsys.readouterr().out.splitlines())
    return {row[0]: " ".join(row[1:]) for row in rows}


def test_flags_of_existing_deployments_are_accepted(capsys: Captured) -> None:
    found = shown(capsys, *EXISTING)

    assert found["--leader-elect"] == "True flag"
    assert found["--tailscale-accept-routes"] == "False flag"
    assert found["--tartkubelet-max-pods"] == "3 flag"
    assert found["--drain-timeout"] == "none default"


def test_variables_of_existing_deployments_are_read(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPI_TARTKUBELET_API_SERVER_URL", "https://api.example:6443")
    monkeypatch.setenv("CAPI_DEFAULT_ADOPT_POOL_PREFIX", "macs-")

    found = shown(capsys, "--default-adopt-pool-prefix", "own-")

    expected = "https://api.example:6443 environment CAPI_TARTKUBELET_API_SERVER_URL"
    assert found["--api-server-url"] == expected
    assert found["--default-adopt-pool-prefix"] == "own- flag"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tartkubelet-binary-path", "x"], "give --tartkubelet-archive-path and --tartkubelet-"),
        (["--proof-timeout", "5x"], "--proof-timeout '5x' is not a duration"),
        (["--drain-timeout", "soon"], "--drain-timeout 'soon' is not a duration"),
        (["--tartkubelet-terminal-retry-after", "1"], "--tartkubelet-terminal-retry-after '1'"),
        (["--orphan-reclaim-interval", "x"], "--orphan-reclaim-interval 'x' is not a duration"),
        (["--token-lifetime", "5m"], "--token-lifetime must be at least 10 minutes"),
        (["--vm-boot-timeout", "2d"], "--vm-boot-timeout '2d' must be from 1s to 24h"),
        (["--vm-egress-allow", "10.1.0.0"], "--vm-egress-allow[0].cidr '10.1.0.0' must be"),
        (["--vm-egress-allow", "10.1.0.0/16:/udp"], "--vm-egress-allow '10.1.0.0/16:/udp' has no"),
        (["--vm-egress-allow", "10.1.0.0/16:x"], "--vm-egress-allow[0].ports[0] 'x' must be"),
        (["--vm-egress-allow", "8.8.8.0/24"], "--vm-egress-allow[0].cidr 8.8.8.0/24 is not within"),
        (["--vm-kura-egress-cidr", "10.0.0.1"], "--vm-kura-egress-cidr '10.0.0.1' must be"),
        (["--vm-cluster-dns-ip", "a..b"], "--vm-cluster-dns-ip 'a..b' must be"),
        (["--metrics-bind-address", "x"], "--metrics-bind-address 'x' is not host:port"),
        (["--dhcp-lease-seconds", "5"], "'--dhcp-lease-seconds': 5 is not in the range"),
        (["--machine-max-concurrent-reconciles", "0"], "'--machine-max-concurrent-reconciles': 0"),
        (["--host-ssh-port", "0"], "'--host-ssh-port': 0 is not in the range"),
        (["--proof-timeout", "0s"], "--proof-timeout must be longer than 0s"),
        (["--smoke-image", "two words"], "--smoke-image 'two words' must be an image, such as"),
        (["--secrets-namespace", "Mac"], "--secrets-namespace 'Mac' must be the name of an object"),
        (["--orphan-reclaim-zones", "fr-par-1,x"], "--orphan-reclaim-zones 'x' must be a zone"),
        (["--default-adopt-pool-prefix", "-a"], "--default-adopt-pool-prefix '-a' must be the"),
    ],
)
def test_bad_value_names_its_flag(arguments: list[str], message: str, capsys: Captured) -> None:
    assert main.run(["machines", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_replaced_flag_is_also_refused_as_a_variable(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPI_TARTKUBELET_BINARY_PATH", "/opt/tart-kubelet/agent")

    assert main.run(["machines"]) == 2
    assert "CAPI_TARTKUBELET_BINARY_PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.1.0.0/16", AllowedNetwork(cidr="10.1.0.0/16")),
        ("10.1.0.0/16:443", AllowedNetwork(cidr="10.1.0.0/16", ports=("443",))),
        (
            "10.1.0.0/16:53,8000-8100/udp",
            AllowedNetwork(cidr="10.1.0.0/16", ports=("53", "8000-8100"), protocol="udp"),
        ),
    ],
)
def test_allowed_network_is_parsed(text: str, expected: AllowedNetwork) -> None:
    found = settings(NetworkFlags(vm_egress_allow=[text]))

    assert found.hosts.egress.allow == (expected,)


def test_limits_of_hosts_reach_the_controllers() -> None:
    found = settings(
        HostFlags(
            machine_max_concurrent_reconciles=7,
            bootstrap_reboot_after=0,
            bootstrap_max_attempts=5,
            max_unavailable_percent=25,
            quarantine_after=3,
            tartkubelet_terminal_retry_after="0",
            drain_timeout="1h30m",
            host_ssh_port=2222,
        )
    ).machines

    assert (found.operations, found.quarantine_after, found.ssh_port) == (7, 3, 2222)
    assert found.decisions.drain_timeout == timedelta(hours=1, minutes=30)
    assert found.decisions.recovery.reboot_after == 0
    assert found.decisions.recovery.max_attempts == 5
    assert found.decisions.drift.max_unavailable_percent == 25
    assert found.decisions.drift.terminal_retry_after == timedelta()


def test_drain_of_a_released_host_has_no_deadline_by_default() -> None:
    assert settings().machines.decisions.drain_timeout is None


def test_tailnet_needs_both_the_programs_and_the_key() -> None:
    archive = Path("tailscale.tar.gz")
    both = NetworkFlags(tailscale_binaries_path=archive, tailscale_auth_key_secret_name="key")

    assert settings(NetworkFlags(tailscale_binaries_path=archive)).hosts.tailnet is None
    assert settings(both).hosts.tailnet is not None
    assert settings(both).artifacts.tailscale == Program(archive, "1.96.5")


def test_spread_deployment_is_in_the_namespace_of_secrets() -> None:
    found = settings(
        ProcessFlags(secrets_namespace="tuist"), ProviderFlags(fleet_spread_deployment="processor")
    )

    assert found.machines.spread is not None
    assert found.machines.spread.namespace == "tuist"


def test_flags_without_effect_are_named_unless_they_leave_a_feature_out() -> None:
    old = OldFlags(log_ship_url="https://logs.example", runner_cache_volume_gib="0")

    assert list(machine_settings.without_effect(old)) == ["--log-ship-url"]


def test_help_shows_flags_by_group(capsys: Captured) -> None:
    assert main.run(["machines", "--help"]) == 0

    printed = capsys.readouterr().out
    titles = [line for line in printed.splitlines() if line.endswith(":") and line[0] != " "]
    assert "How Macs are set up, proven, updated and released:" in titles
    assert "Examples:" in printed
    assert printed.index("--secrets-namespace") < printed.index("--api-server-url")


def test_each_field_has_the_name_of_its_flag() -> None:
    program = typer.main.get_command(main.command_line())
    assert isinstance(program, TyperGroup)

    found = {each.name: each.opts[0] for each in program.commands["machines"].params if each.name}

    others = {"help"}
    assert {
        name: flag
        for name, flag in found.items()
        if name not in others and flag != "--" + name.replace("_", "-")
    } == {}
