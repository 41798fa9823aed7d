"""The specification of a Mac for its host steps, and the hash by which its drift is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.api.host_settings import AllowedNetwork, Egress, HostSettings
from bramley.api.names import labels
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host import spec as host_spec
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.spec import MacSpec
from bramley.kube.tls import Trust
from bramley.machines.host_configuration import (
    Artifacts,
    HostDefaults,
    HostSecrets,
    TailnetSettings,
    fingerprint,
    mac_spec,
)
from bramley.machines.mac import Mac
from tests.unit.machines.macs import a_mac

KEY = b"the key of the fleet"
LOGINS = Secret('{"auths": {"ghcr.io": {"auth": "c2VjcmV0OnNlY3JldA=="}}}')
OTHER_LOGINS = Secret('{"auths": {"ghcr.io": {"auth": "b3RoZXI6b3RoZXI="}}}')
TAILNET = TailnetSettings(auth_key_secret_name="tailscale")


def an_artifact(name: str, content: str = "1") -> Artifact:
    digest = f"{name}{content}".encode().hex().ljust(64, "0")[:64]
    return Artifact(name=name, version="1.0", path=Path("/nowhere"), size=1, sha256=digest)


def artifacts(**fields: Any) -> Artifacts:
    default: dict[str, Any] = {
        "store": ArtifactStore(),
        "tart": an_artifact("tart"),
        "interpreter": an_artifact("python"),
        "agent": an_artifact("agent"),
        "tailscale": an_artifact("tailscale"),
        "node_exporter": an_artifact("exporter"),
        "actions_runners": {"2.330.0": an_artifact("runner")},
    }
    return Artifacts(**{**default, **fields})


def defaults(*, replaced: dict[str, Artifact | None] | None = None, **fields: Any) -> HostDefaults:
    default: dict[str, Any] = {
        "artifacts": artifacts(**(replaced or {})),
        "server": "https://api.example:6443",
        "trust": Trust(),
        "tailnet": TAILNET,
    }
    return HostDefaults(**{**default, **fields})


def hashed(
    mac: Mac | None = None, common: HostDefaults | None = None, logins: Secret | None = LOGINS
) -> str:
    return fingerprint(mac or a_mac(), common or defaults(), logins=logins, key=KEY)


def with_settings(**fields: Any) -> Mac:
    return a_mac(settings=HostSettings(**fields))


ALLOWED = Egress(allow=[AllowedNetwork(cidr="10.1.0.0/16", ports=["443"])])


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda: hashed(with_settings(egress=ALLOWED)), id="egress"),
        pytest.param(lambda: hashed(with_settings(vm_boot_timeout_seconds=99)), id="VM boot"),
        pytest.param(lambda: hashed(with_settings(dhcp_lease_seconds=900)), id="DHCP"),
        pytest.param(lambda: hashed(a_mac(host_cpu=9)), id="CPU"),
        pytest.param(lambda: hashed(a_mac(host_memory_mb=999)), id="memory"),
        pytest.param(lambda: hashed(a_mac(labels={"example.com/a": "b"})), id="labels"),
        pytest.param(lambda: hashed(a_mac(fleet="other")), id="fleet"),
        pytest.param(lambda: hashed(a_mac(builder=True)), id="builder"),
        pytest.param(lambda: hashed(logins=None), id="no logins"),
        pytest.param(lambda: hashed(logins=OTHER_LOGINS), id="other logins"),
        pytest.param(lambda: hashed(common=defaults(client_authority=b"CA")), id="authority"),
        pytest.param(lambda: hashed(common=defaults(server="https://b.example")), id="server"),
        pytest.param(lambda: hashed(common=defaults(trust=Trust(authorities="CA"))), id="trust"),
        pytest.param(lambda: hashed(common=defaults(max_pods=1)), id="Pods"),
        pytest.param(lambda: hashed(common=defaults(host_cpu=9)), id="default CPU"),
        pytest.param(lambda: hashed(common=defaults(host_memory_mb=999)), id="default memory"),
        pytest.param(lambda: hashed(common=defaults(stage_megabytes_per_second=9)), id="staging"),
        pytest.param(lambda: hashed(common=defaults(binds_to_address=True)), id="address"),
        pytest.param(
            lambda: hashed(common=defaults(egress=host_spec.Egress(cache_network="10.2.0.0/16"))),
            id="common egress",
        ),
        pytest.param(
            lambda: hashed(common=defaults(settings=HostSettings(dhcp_lease_seconds=900))),
            id="default DHCP",
        ),
        pytest.param(
            lambda: hashed(common=defaults(tailnet=None, replaced={"node_exporter": None})),
            id="no tailnet",
        ),
        pytest.param(
            lambda: hashed(common=defaults(tailnet=replace(TAILNET, tags=("tag:mac",)))), id="tags"
        ),
        pytest.param(
            lambda: hashed(common=defaults(tailnet=replace(TAILNET, accept_routes=True))),
            id="routes",
        ),
    ],
)
def test_hash_changes_with_each_setting(changed: Callable[[], str]) -> None:
    assert changed() != hashed()


@pytest.mark.parametrize("name", ["interpreter", "agent", "tailscale", "node_exporter"])
def test_hash_changes_with_each_artifact(name: str) -> None:
    other = defaults(replaced={name: an_artifact(name, "2")})

    assert hashed(common=other) != hashed()


@pytest.mark.parametrize("content", ["CA one", "CA two"])
def test_hash_changes_with_the_content_of_the_authority(content: str) -> None:
    one = hashed(common=defaults(client_authority=content.encode()))

    assert one != hashed(common=defaults(client_authority=b"CA three"))


@pytest.mark.parametrize(
    "changed",
    [
        # Tart is replaced on request only: macOS ties a permission to its signature.
        lambda: hashed(common=defaults(replaced={"tart": an_artifact("tart", "2")})),
        lambda: hashed(common=defaults(token_lifetime=timedelta(hours=1))),
        lambda: hashed(replace(a_mac(), address="192.0.2.9", port=2222)),
        lambda: hashed(a_mac(credentials_secret_name="other")),
        lambda: hashed(with_settings(registry_credentials_secret_name="same-content")),
        lambda: hashed(common=defaults(tailnet=replace(TAILNET, auth_key_secret_name="other"))),
    ],
)
def test_hash_does_not_change_with_what_is_no_configuration(changed: Callable[[], str]) -> None:
    assert changed() == hashed()


def test_hash_is_repeatable() -> None:
    """A manager that starts again must not roll a fleet."""
    one, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}

    assert hashed() == hashed()
    assert hashed(a_mac(labels=one)) == hashed(a_mac(labels=other))


def test_logins_are_not_found_from_the_hash_without_the_key() -> None:
    other = fingerprint(a_mac(), defaults(), logins=LOGINS, key=b"another key")

    assert other != hashed()
    without = [fingerprint(a_mac(), defaults(), logins=None, key=key) for key in (KEY, b"other")]
    assert without[0] == without[1]


def test_builder_settings_are_part_of_the_hash() -> None:
    def builder(**fields: str) -> str:
        runner = GHActionsRunner(**{"gh_runner_version": "2.330.0", **fields})
        return hashed(replace(a_mac(), builder=runner))

    found = {
        builder(),
        builder(gh_org="other"),
        builder(gh_runner_labels="self-hosted,other"),
        builder(gh_runner_group="other"),
    }
    assert len(found) == 4
    assert builder(gh_app_secret_name="other") == builder()


def test_unknown_version_of_the_runner_is_named() -> None:
    runner = GHActionsRunner(gh_runner_version="2.1.0")

    with pytest.raises(errors.InvalidSpec) as raised:
        hashed(replace(a_mac(), builder=runner))

    assert str(raised.value) == (
        "spec.ghActionsRunner.ghRunnerVersion 2.1.0: the manager has no archive of it; it has 2.330.0"
    )


def test_manager_without_runners_says_so() -> None:
    with pytest.raises(errors.InvalidSpec, match="it has none"):
        artifacts(actions_runners={}).actions_runner("2.1.0")


def spec_of(mac: Mac, common: HostDefaults | None = None) -> MacSpec:
    return mac_spec(mac, common or defaults(), HostSecrets())


def test_settings_of_a_machine_override_those_of_the_manager() -> None:
    fleet = HostSettings(
        egress=ALLOWED,
        registry_credentials_secret_name="fleet-logins",
        vm_boot_timeout_seconds=100,
        dhcp_lease_seconds=100,
    )
    common = defaults(settings=fleet)

    assert common.settings_of(a_mac()) == fleet
    own = HostSettings(
        egress=Egress(),
        registry_credentials_secret_name="own",
        vm_boot_timeout_seconds=200,
        dhcp_lease_seconds=300,
    )
    assert common.settings_of(a_mac(settings=own)) == own
    spec = spec_of(a_mac(settings=own), common)
    assert (spec.job.vm_boot_timeout_seconds, spec.dhcp_lease_seconds) == (200, 300)
    assert spec.egress.allow == ()
    assert spec_of(a_mac(), common).dhcp_lease_seconds == 100


def test_allowed_networks_are_added_to_the_common_ones() -> None:
    common = defaults(egress=host_spec.Egress(cache_network="10.2.0.0/16", cluster_dns="dns.local"))
    no_ports = AllowedNetwork(cidr="10.3.0.0/16")

    spec = spec_of(with_settings(egress=Egress(allow=[*ALLOWED.allow, no_ports])), common)

    assert (spec.egress.cache_network, spec.egress.cluster_dns) == ("10.2.0.0/16", "dns.local")
    first, second = spec.egress.allow
    assert (first.cidr, first.ports) == ("10.1.0.0/16", ("443",))
    # None allows all ports, and an empty list would allow none.
    assert (second.cidr, second.ports) == ("10.3.0.0/16", None)


def test_new_node_registers_as_unproven_and_in_its_fleet() -> None:
    job = spec_of(a_mac(labels={"example.com/a": "b"})).agent_job

    assert job.register_taints == ("tuist.dev/unproven=true:NoSchedule",)
    assert job.node_labels == {"example.com/a": "b", labels.FLEET: "f"}
    assert spec_of(a_mac(fleet="")).agent_job.node_labels == {}
    assert job.is_builder is False
    assert spec_of(a_mac(builder=True)).agent_job.is_builder is True


def test_builder_has_the_labels_of_its_list() -> None:
    runner = GHActionsRunner(gh_runner_version="2.330.0", gh_runner_labels=" self-hosted, ,macOS ")

    spec = spec_of(replace(a_mac(), builder=runner))

    assert spec.builder is not None
    assert spec.builder.labels == ("self-hosted", "macOS")


def test_address_is_bound_only_on_request() -> None:
    assert spec_of(a_mac()).job.node_ip == ""
    job = spec_of(a_mac(), defaults(binds_to_address=True)).job
    assert (job.node_ip, job.kubelet_bind_address) == ("192.0.2.1", "192.0.2.1:10250")
    assert (job.metrics_bind_address, job.health) == ("192.0.2.1:8080", "192.0.2.1:8081")


def test_invalid_value_of_a_machine_is_refused() -> None:
    with pytest.raises(errors.Refused, match="host_cpu"):
        hashed(a_mac(host_cpu=9999))


def test_no_secret_is_shown() -> None:
    async def token() -> Secret:
        return Secret("registration-secret")

    secrets = HostSecrets(
        password=Secret("sudo-secret"),
        kubeconfig=Secret("token-secret"),
        registry_credentials=LOGINS,
        tailscale_auth_key=Secret("tskey-auth-secret"),
        registration_token=token,
    )

    spec = mac_spec(a_mac(builder=True), defaults(), secrets)

    for shown in (secrets, spec):
        for text in (repr(shown), str(shown)):
            assert "-secret" not in text
            assert "c2VjcmV0" not in text
