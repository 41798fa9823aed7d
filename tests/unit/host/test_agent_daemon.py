"""The agent's property list: flags in the order of the contract, the flag of builders, and escaped values."""

from __future__ import annotations

import dataclasses
import plistlib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api import taints
from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.cli import agent_flags, agent_settings
from bramley.host import agent_daemon
from bramley.host.agent_daemon import AgentJob

NO_GC = "--disable-vm-gc"
RUNNER = AgentJob(node_name="mac-1", host_cpu=8, host_memory_mb=16384, max_pods=2, is_builder=False)
BUILDER = dataclasses.replace(RUNNER, is_builder=True)
UNSPECIFIED = dataclasses.replace(RUNNER, is_builder=None)
FULL = dataclasses.replace(
    BUILDER,
    user="jane",
    node_labels={"tuist.dev/fleet": "x", "a": ""},
    register_taints=("dedicated=builders:NoSchedule", "a:NoExecute"),
    on_tailnet=True,
    provider_id="scw-applesilicon://fr-par-1/u",
    registry_credentials_file="/etc/tart-kubelet/registry.json",
    client_ca_file="/etc/tart-kubelet/ca.crt",
    stage_megabytes_per_second=50,
    vm_boot_timeout_seconds=420,
    node_ip="127.0.0.2",
    kubelet_bind_address="127.0.0.2:10250",
    metrics_bind_address="127.0.0.2:8080",
    health_bind_address="127.0.0.2:8081",
    tart_home="/Users/jane/tart",
)


def read(rendered: bytes) -> dict[str, Any]:
    found = plistlib.loads(rendered, fmt=plistlib.FMT_XML)
    assert isinstance(found, dict)
    return found


def arguments(rendered: bytes) -> list[str]:
    return [str(one) for one in read(rendered)["ProgramArguments"]]


def test_plist_with_the_required_flags() -> None:
    assert read(agent_daemon.render_plist(RUNNER)) == {
        "Label": "dev.tuist.tart-kubelet",
        "UserName": "m1",
        "ProgramArguments": [
            "/usr/local/bin/tart-kubelet",
            "--node-name=mac-1",
            "--kubeconfig=/etc/tart-kubelet/kubeconfig",
            "--host-cpu=8",
            "--host-memory-mb=16384",
            "--max-pods=2",
        ],
        "EnvironmentVariables": {
            "HOME": "/Users/m1",
            "PATH": "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        },
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "StandardOutPath": "/var/log/tart-kubelet.log",
        "StandardErrorPath": "/var/log/tart-kubelet.log",
    }


def test_optional_flags_have_the_order_of_the_contract() -> None:
    rendered = agent_daemon.render_plist(FULL)

    assert arguments(rendered)[6:] == [
        "--node-labels=a=,tuist.dev/fleet=x",
        "--node-ip-source=tailscale",
        "--provider-id=scw-applesilicon://fr-par-1/u",
        NO_GC,
        "--registry-credentials-file=/etc/tart-kubelet/registry.json",
        "--client-ca-file=/etc/tart-kubelet/ca.crt",
        "--stage-megabytes-per-second=50",
        "--register-taints=dedicated=builders:NoSchedule,a:NoExecute",
        "--vm-boot-timeout=420",
        "--health-probe-bind-address=127.0.0.2:8081",
        "--node-ip=127.0.0.2",
        "--kubelet-bind-address=127.0.0.2:10250",
        "--metrics-bind-address=127.0.0.2:8080",
        "--tart-home=/Users/jane/tart",
    ]
    assert read(rendered)["EnvironmentVariables"]["HOME"] == "/Users/jane"


def test_agent_accepts_all_rendered_flags(tmp_path: Path) -> None:
    readable = tmp_path / "file"
    readable.touch()
    given_flags = [
        one.replace("/etc/tart-kubelet/registry.json", str(readable)).replace(
            "/etc/tart-kubelet/ca.crt", str(readable)
        )
        for one in arguments(agent_daemon.render_plist(FULL))[1:]
    ]

    flags, _ = agent_flags.read(given_flags, {})
    settings = agent_settings.settings(flags, {})

    assert settings.node.labels == FULL.node_labels
    assert settings.node.register_taints == taints.parse(FULL.register_taints)
    assert settings.address_source == "tailscale"
    assert settings.stage_megabytes_per_second == 50
    assert (str(settings.health), str(settings.metrics)) == ("127.0.0.2:8081", "127.0.0.2:8080")
    assert not settings.gc_enabled
    assert agent_flags.ignored_flags(flags) == []


def test_health_address_on_a_tailnet_is_loopback() -> None:
    """The agent's default would be the tailnet address, which the health probe on the Mac does not know."""
    on_tailnet = dataclasses.replace(RUNNER, on_tailnet=True)

    assert on_tailnet.health == "127.0.0.1:8081"
    assert "--health-probe-bind-address=127.0.0.1:8081" in arguments(
        agent_daemon.render_plist(on_tailnet)
    )
    assert RUNNER.health == ":8081"


@pytest.mark.parametrize(
    "value", ["8081", "127.0.0.1:", "127.0.0.1:0", ":70000", "host:1", "[::1]:80", "1.2.3.4:8\n"]
)
def test_invalid_listen_address_is_refused(value: str) -> None:
    with pytest.raises(InvalidSpec, match="health_bind_address"):
        dataclasses.replace(RUNNER, health_bind_address=value)


def test_vm_gc_is_disabled_only_for_builders() -> None:
    assert NO_GC in arguments(agent_daemon.render_plist(BUILDER))
    assert NO_GC not in arguments(agent_daemon.render_plist(RUNNER))
    assert NO_GC not in arguments(agent_daemon.render_plist(UNSPECIFIED))


def test_update_of_a_builder_keeps_the_flag() -> None:
    current = agent_daemon.render_plist(BUILDER)

    assert NO_GC in arguments(agent_daemon.render_plist(BUILDER, current=current))
    assert NO_GC in arguments(agent_daemon.render_plist(UNSPECIFIED, current=current))


def test_update_of_a_runner_does_not_add_the_flag() -> None:
    current = agent_daemon.render_plist(RUNNER)

    assert agent_daemon.render_plist(UNSPECIFIED, current=current) == current


def test_explicit_setting_overrides_the_current_plist() -> None:
    assert agent_daemon.render_plist(
        RUNNER, current=agent_daemon.render_plist(BUILDER)
    ) == agent_daemon.render_plist(RUNNER)
    assert agent_daemon.render_plist(
        BUILDER, current=agent_daemon.render_plist(RUNNER)
    ) == agent_daemon.render_plist(BUILDER)


@pytest.mark.parametrize(
    ("given_flags", "is_builder"),
    [
        ([NO_GC], True),
        ([f"{NO_GC}=true"], True),
        ([f"{NO_GC}=false"], False),
        ([NO_GC, f"{NO_GC}=0"], False),
        ([f"{NO_GC}-ever"], False),
        ([], False),
        ([7, NO_GC], True),
    ],
)
def test_current_flag_is_parsed_as_the_agent_does(
    given_flags: list[object], *, is_builder: bool
) -> None:
    current = plistlib.dumps({"ProgramArguments": given_flags}, fmt=plistlib.FMT_BINARY)

    assert (
        NO_GC in arguments(agent_daemon.render_plist(UNSPECIFIED, current=current))
    ) is is_builder


@pytest.mark.parametrize(
    "current",
    [
        b"not a plist",
        plistlib.dumps([1]),
        plistlib.dumps({}),
        plistlib.dumps({"ProgramArguments": "x"}),
        agent_daemon.render_plist(BUILDER)[:-40],
        b"<plist><dict><date>x</date></dict></plist>",
    ],
    ids=lambda current: repr(current[-20:]),
)
def test_invalid_plist_is_refused_without_an_explicit_setting(current: bytes) -> None:
    with pytest.raises(
        BadConfiguration, match="whether this Mac is a builder; set builder explicitly"
    ):
        agent_daemon.render_plist(UNSPECIFIED, current=current)

    assert NO_GC in arguments(agent_daemon.render_plist(BUILDER, current=current))


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda one: b"bplist00" + one))
def test_any_current_bytes_are_handled(current: bytes) -> None:
    try:
        rendered = agent_daemon.render_plist(UNSPECIFIED, current=current)
    except BadConfiguration:
        return

    assert NO_GC not in arguments(rendered)


def test_values_are_escaped() -> None:
    """The grammars refuse such a value; the property list would be valid even without them."""
    job = dataclasses.replace(RUNNER)
    object.__setattr__(job, "provider_id", "x://<a>&\"'</string>")

    rendered = agent_daemon.render_plist(job)

    assert arguments(rendered)[-1] == "--provider-id=x://<a>&\"'</string>"
    assert len(list(ET.fromstring(rendered).iter("array"))) == 1  # noqa: S314


def test_rendering_is_deterministic() -> None:
    reordered = dataclasses.replace(FULL, node_labels=dict(reversed([*FULL.node_labels.items()])))

    assert agent_daemon.render_plist(reordered) == agent_daemon.render_plist(FULL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node_name", "Mac 1"),
        ("host_cpu", 0),
        ("host_memory_mb", -1),
        ("max_pods", 1000),
        ("user", "../x"),
        ("node_labels", {"a,b": "c"}),
        ("register_taints", ("a:NoSchedule,b:NoSchedule",)),
        ("register_taints", ("a:Never",)),
        ("register_taints", ("a:NoSchedule", "a=b:NoSchedule")),
        ("provider_id", "<x>"),
        ("registry_credentials_file", "relative"),
        ("client_ca_file", "/a/../b"),
        ("stage_megabytes_per_second", -5),
    ],
)
def test_invalid_job_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidSpec, match=f"launchd job: {field} ") as caught:
        dataclasses.replace(RUNNER, **{field: value})  # type: ignore[arg-type]

    assert [cause.field for cause in caught.value.causes] == [field]
