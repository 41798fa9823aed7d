"""The agent's property list: flags in the order of the contract, the builders' flag above all, and no text that breaks it."""

from __future__ import annotations

import dataclasses
import plistlib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.cli import agent_flags, agent_settings
from bramley.host import plist
from bramley.host.plist import AgentJob

NO_GC = "--disable-vm-gc"
PURE = AgentJob(node_name="mac-1", host_cpu=8, host_memory_mb=16384, max_pods=2, is_builder=False)
BUILDER = dataclasses.replace(PURE, is_builder=True)
NOT_TOLD = dataclasses.replace(PURE, is_builder=None)
FULL = dataclasses.replace(
    BUILDER,
    user="jane",
    node_labels={"tuist.dev/fleet": "x", "a": ""},
    on_tailnet=True,
    provider_id="scw-applesilicon://fr-par-1/u",
    registry_credentials_file="/etc/tart-kubelet/registry.json",
    client_ca_file="/etc/tart-kubelet/ca.crt",
    stage_megabytes_per_second=50,
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


def test_a_pure_node_gets_the_flags_that_always_stand() -> None:
    assert read(plist.render(PURE)) == {
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


def test_every_other_flag_stands_in_the_order_of_the_contract() -> None:
    rendered = plist.render(FULL)

    assert arguments(rendered)[6:] == [
        "--node-labels=a=,tuist.dev/fleet=x",
        "--node-ip-source=tailscale",
        "--provider-id=scw-applesilicon://fr-par-1/u",
        NO_GC,
        "--registry-credentials-file=/etc/tart-kubelet/registry.json",
        "--client-ca-file=/etc/tart-kubelet/ca.crt",
        "--stage-megabytes-per-second=50",
        "--health-probe-bind-address=127.0.0.2:8081",
        "--node-ip=127.0.0.2",
        "--kubelet-bind-address=127.0.0.2:10250",
        "--metrics-bind-address=127.0.0.2:8080",
        "--tart-home=/Users/jane/tart",
    ]
    assert read(rendered)["EnvironmentVariables"]["HOME"] == "/Users/jane"


def test_the_agent_takes_the_flags_it_is_started_with(tmp_path: Path) -> None:
    readable = tmp_path / "file"
    readable.touch()
    given_flags = [
        one.replace("/etc/tart-kubelet/registry.json", str(readable)).replace(
            "/etc/tart-kubelet/ca.crt", str(readable)
        )
        for one in arguments(plist.render(FULL))[1:]
    ]

    flags, _ = agent_flags.read(given_flags, {})
    settings = agent_settings.settings(flags, {})

    assert settings.node.labels == FULL.node_labels
    assert settings.address_source == "tailscale"
    assert settings.stage_megabytes_per_second == 50
    assert (str(settings.health), str(settings.metrics)) == ("127.0.0.2:8081", "127.0.0.2:8080")
    assert not settings.collects
    assert agent_flags.without_effect(flags) == []


def test_on_the_tailnet_the_agent_tells_how_it_does_on_loopback() -> None:
    """Its own choice would be the tailnet's address, which a look from this Mac does not know."""
    on_tailnet = dataclasses.replace(PURE, on_tailnet=True)

    assert on_tailnet.health == "127.0.0.1:8081"
    assert "--health-probe-bind-address=127.0.0.1:8081" in arguments(plist.render(on_tailnet))
    assert PURE.health == ":8081"


@pytest.mark.parametrize(
    "value", ["8081", "127.0.0.1:", "127.0.0.1:0", ":70000", "host:1", "[::1]:80", "1.2.3.4:8\n"]
)
def test_an_address_to_listen_on_is_checked(value: str) -> None:
    with pytest.raises(InvalidSpec, match="health_bind_address"):
        dataclasses.replace(PURE, health_bind_address=value)


def test_only_builders_keep_the_collector_off() -> None:
    assert NO_GC in arguments(plist.render(BUILDER))
    assert NO_GC not in arguments(plist.render(PURE))
    assert NO_GC not in arguments(plist.render(NOT_TOLD))


def test_an_update_of_a_builder_does_not_lose_its_flag() -> None:
    current = plist.render(BUILDER)

    assert NO_GC in arguments(plist.render(BUILDER, current=current))
    assert NO_GC in arguments(plist.render(NOT_TOLD, current=current))


def test_an_update_of_a_pure_node_does_not_invent_it() -> None:
    current = plist.render(PURE)

    assert plist.render(NOT_TOLD, current=current) == current


def test_what_is_told_wins_over_what_the_mac_has() -> None:
    assert plist.render(PURE, current=plist.render(BUILDER)) == plist.render(PURE)
    assert plist.render(BUILDER, current=plist.render(PURE)) == plist.render(BUILDER)


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
def test_the_flag_is_found_as_the_agent_would_read_it(
    given_flags: list[object], *, is_builder: bool
) -> None:
    current = plistlib.dumps({"ProgramArguments": given_flags}, fmt=plistlib.FMT_BINARY)

    assert (NO_GC in arguments(plist.render(NOT_TOLD, current=current))) is is_builder


@pytest.mark.parametrize(
    "current",
    [
        b"not a plist",
        plistlib.dumps([1]),
        plistlib.dumps({}),
        plistlib.dumps({"ProgramArguments": "x"}),
        plist.render(BUILDER)[:-40],
        b"<plist><dict><date>x</date></dict></plist>",
    ],
    ids=lambda current: repr(current[-20:]),
)
def test_a_property_list_that_cannot_be_read_is_not_guessed_about(current: bytes) -> None:
    with pytest.raises(BadConfiguration, match="say whether this Mac is a builder"):
        plist.render(NOT_TOLD, current=current)

    assert NO_GC in arguments(plist.render(BUILDER, current=current))


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda one: b"bplist00" + one))
def test_no_bytes_on_the_mac_break_the_rendering(current: bytes) -> None:
    try:
        rendered = plist.render(NOT_TOLD, current=current)
    except BadConfiguration:
        return

    assert NO_GC not in arguments(rendered)


def test_texts_are_escaped() -> None:
    """No grammar lets such a text through; the property list would hold even if one did."""
    job = dataclasses.replace(PURE)
    object.__setattr__(job, "provider_id", "x://<a>&\"'</string>")

    rendered = plist.render(job)

    assert arguments(rendered)[-1] == "--provider-id=x://<a>&\"'</string>"
    assert len(list(ET.fromstring(rendered).iter("array"))) == 1  # noqa: S314


def test_the_same_job_is_the_same_bytes() -> None:
    turned = dataclasses.replace(FULL, node_labels=dict(reversed([*FULL.node_labels.items()])))

    assert plist.render(turned) == plist.render(FULL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node_name", "Mac 1"),
        ("host_cpu", 0),
        ("host_memory_mb", -1),
        ("max_pods", 1000),
        ("user", "../x"),
        ("node_labels", {"a,b": "c"}),
        ("provider_id", "<x>"),
        ("registry_credentials_file", "relative"),
        ("client_ca_file", "/a/../b"),
        ("stage_megabytes_per_second", -5),
    ],
)
def test_a_job_that_breaks_a_grammar_does_not_exist(field: str, value: object) -> None:
    with pytest.raises(InvalidSpec, match=f"launchd job: {field} ") as caught:
        dataclasses.replace(PURE, **{field: value})  # type: ignore[arg-type]

    assert [cause.field for cause in caught.value.causes] == [field]
