"""The commands about pools: their flags, and what they print."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bramley.api.runner_pool import RunnerPool
from bramley.app.pool_queries import Fleets
from bramley.base.errors import BadConfiguration
from bramley.base.explanation import Explanation, HostNote, PodNote, Problem
from bramley.cli import explain, main, pool_options, roll_output, rollout, runners, status
from bramley.runners.explanation.rolls import RollProgress, progress
from bramley.runtime.probes import ProbeSettings
from tests.unit.machines.test_explanation import a_mac_host, a_machine
from tests.unit.runners.test_explanation_pods import NEW, NOW, OLD, RUNNING, a_node, a_pod
from tests.unit.runners.test_explanation_pools import a_pool, condition

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("text", ["pool/macos", "rpool/macos", "runnerpools/macos", "macos"])
def test_pool_is_named_as_kubectl_does(text: str) -> None:
    assert pool_options.pool_name(text) == "macos"


@pytest.mark.parametrize("text", ["pod/macos", "pool/", ""])
def test_other_kinds_are_not_pools(text: str) -> None:
    with pytest.raises(BadConfiguration, match="pool/NAME"):
        pool_options.pool_name(text)


@pytest.mark.parametrize("arguments", [["explain", "node/a"], ["explain", "macos"]])
def test_other_kinds_are_not_explained(arguments: list[str], capsys: Captured) -> None:
    assert main.run(arguments) == 2
    assert "pool/NAME, pod/NAME, machine/NAME or machost/NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        # While the image is rolled, and after it was rolled.
        ({"lastGoodImage": OLD}, OLD),
        ({"lastGoodImage": NEW, "previousGoodImage": OLD}, OLD),
    ],
)
def test_undo_returns_to_the_image_before(stored: dict[str, Any], expected: str) -> None:
    assert rollout.previous_image(a_pool(status=stored)) == expected


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ({"lastGoodImage": NEW}, "has no previous image"),
        ({"lastGoodImage": ""}, "has no previous image"),
        ({"lastGoodImage": OLD, "rejectedImage": NEW}, "has already returned"),
    ],
)
def test_nothing_to_undo_says_why(stored: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadConfiguration, match=reason):
        rollout.previous_image(a_pool(status=stored))


def a_roll(phase: str = "Rolling", **stored: Any) -> RollProgress:
    counts = {"observedReplicas": 3, "staleReplicas": 2, "readyReplicas": 2, "stagedHosts": 1}
    return progress(a_pool(phase, status={**counts, **stored}), hosts=3)


def test_status_of_a_roll_is_one_table(capsys: Captured) -> None:
    roll_output.show(a_roll(), now=NOW)

    assert capsys.readouterr().out == (
        "Pool        default/macos\n"
        "Phase       Rolling for 90 s\n"
        f"Target      {NEW}\n"
        f"Last good   {OLD}\n"
        "Hosts       1 of 3 have the image\n"
        "Progress    1 of 3 updated, 0 of at most 1 in flight\n"
        "Runners     3 desired, 2 ready, 0 busy, 2 stale\n"
    )


def test_rejected_image_is_shown_with_its_reason() -> None:
    why = condition("RolledOut", "False", "CanaryExited", "2 canaries ended")
    shown = dict(roll_output.rows(a_roll("Rejected", rejectedImage=NEW, conditions=[why]), now=NOW))

    assert shown["Rejected"] == f"{NEW} (CanaryExited)"
    assert shown["Why"] == "2 canaries ended"


async def states(*found: RollProgress) -> AsyncIterator[RollProgress]:
    for each in found:
        yield each


async def test_changes_are_plain_lines_without_a_terminal(capsys: Captured) -> None:
    done = a_roll("Idle", staleReplicas=0)

    last = await roll_output.follow(states(a_roll(), a_roll(), done))

    lines = capsys.readouterr().out.splitlines()
    assert last is done
    assert [line[10:].partition(",")[0] for line in lines[:-1]] == [
        "Rolling: 1 of 3 updated",
        "Idle: 3 of 3 updated",
    ]
    assert lines[-1] == f"Rolled out: every runner has image {NEW}"


async def test_terminal_shows_a_table_and_a_bar(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    await roll_output.follow(states(a_roll("Rejected", rejectedImage=NEW)))

    printed = capsys.readouterr().out
    assert "1 of 3 updated" in printed
    assert "━" in printed


def test_explanation_is_short_text() -> None:
    found = Explanation(
        subject="pool default/macos",
        state="Canary",
        summary="on trial",
        since=NOW - timedelta(seconds=12),
        waits_for=("Pod a",),
        next="a wave",
        problems=(
            Problem(
                type="CapacityShort", status="True", reason="NoHosts", message="no hosts", since=NOW
            ),
        ),
        pods=(PodNote(name="a", node="mac-1", state="boots", since=NOW - timedelta(minutes=3)),),
        hosts=(HostNote(name="mac-1", state="takes Pods", image="has it", slots=2, free=1),),
    )

    assert list(explain.lines(found, now=NOW)) == [
        "pool default/macos: Canary for 12 s",
        "  on trial",
        "Waits for:",
        "  Pod a",
        "Next:",
        "  a wave",
        "Problems:",
        "  CapacityShort=True for 0 s: no hosts",
        "Pods:",
        "  a on mac-1 boots (3 min)",
        "Hosts:",
        "  mac-1 takes Pods; has it; 1 of 2 slots free",
    ]


def the_fleets(*pools: RunnerPool) -> Fleets:
    pod = a_pod(phase="Running", state=RUNNING, ready=True)
    return Fleets((a_node("mac-1"), a_node("mac-2", unschedulable=True)), pools, (pod,))


def test_machines_are_on_the_screen_if_their_kinds_are_served() -> None:
    fleets = the_fleets(a_pool("Idle"))
    waiting = a_machine(
        "Bootstrapped", "Bootstrapping", step="agent (21/26)", phase="Bootstrapping"
    )
    served = replace(fleets, macs=(waiting, a_mac_host(phase="Ready")))

    titles = [title for title, _, _ in status.sections(fleets, now=NOW)]
    title, _, rows = next(iter(status.sections(served, now=NOW)))

    assert "Machines" not in titles
    assert title == "Machines"
    assert rows == [
        ("default/a", "fleet-a", "Bootstrapping", "agent (21/26)", "id-1", ""),
        ("default/own", "", "Ready", "", "192.0.2.9", ""),
    ]
    assert status.as_data(served)["machines"][0]["step"] == "agent (21/26)"
    assert "machines" not in status.as_data(fleets)


def test_hosts_pools_and_rolls_are_on_one_screen() -> None:
    rolling = a_pool("Rolling", status={"observedReplicas": 3, "staleReplicas": 1})
    found = the_fleets(rolling, a_pool("Idle", name="other"))

    lines = list(status.plain_lines(list(status.sections(found, now=NOW))))

    assert [line.split() for line in lines if line.startswith(("mac", "default"))] == [
        ["mac-1", "demo", "Ready", "1/2", "0"],
        ["mac-2", "demo", "is", "cordoned", "or", "being", "deleted", "0/2", "0"],
        ["default/macos", "demo", "3", "0", "0", "1", "Rolling", NEW],
        ["default/other", "demo", "3", "0", "0", "0", "Idle", NEW],
        ["default/macos", "Rolling", "90", "s", "2/3", "0/1", "0/2"],
    ]
    assert "Rolls: none" in status.plain_lines(list(status.sections(the_fleets(), now=NOW)))


def test_status_as_data_has_hosts_and_pools() -> None:
    found = msgspec.to_builtins(status.as_data(the_fleets(a_pool())))

    assert found["hosts"][0]["name"] == "mac-1"
    assert found["pools"][0]["phase"] == "Idle"


def test_digests_are_shortened() -> None:
    assert status.short_image("a@sha256:" + "f" * 64) == "a@sha256:" + "f" * 12
    assert status.short_image(NEW) == NEW


def settings_of(**changes: Any) -> Any:
    values = {
        **dict.fromkeys(("kubeconfig", "context", "token_file")),
        **dict.fromkeys(("dispatch_url", "scaling_signals_url", "sessions_url"), ""),
        **dict.fromkeys(("cluster_dns_ip", "leader_election_namespace"), ""),
        "cluster_domain": "cluster.local",
        "namespace": "pools",
        "metrics_bind_address": "127.0.0.1:8080",
        "health_probe_bind_address": "off",
        "leader_elect": True,
        **changes,
    }
    return runners._settings(values)


@pytest.mark.parametrize(
    ("metrics", "health", "expected"),
    [
        ("off", "0", ()),
        (":8080", "off", (ProbeSettings("", 8080, health=False),)),
        ("[::1]:1", "[::1]:1", (ProbeSettings("::1", 1),)),
        (
            "127.0.0.1:0",
            "127.0.0.1:0",
            (
                ProbeSettings("127.0.0.1", 0, health=False),
                ProbeSettings("127.0.0.1", 0, metrics=False),
            ),
        ),
    ],
)
def test_endpoints_are_parsed(metrics: str, health: str, expected: tuple[Any, ...]) -> None:
    found = settings_of(metrics_bind_address=metrics, health_probe_bind_address=health)

    assert found.probes == expected


@pytest.mark.parametrize("address", ["8080", "host", "::1:80", "a:99999", "a:x"])
def test_invalid_endpoint_is_refused_with_its_flag(address: str, capsys: Captured) -> None:
    assert main.run(["runners", "--metrics-bind-address", address]) == 2
    assert "--metrics-bind-address" in capsys.readouterr().err


def test_flags_of_existing_deployments_are_accepted_and_shown(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUIST_RUNNERS_NAMESPACE", "from-environment")
    old = ["--dispatch-internal-url=http://a", "--dind-image=b", "--registry-mirror-url=c"]

    assert main.run(["runners", *old, "--show-settings"]) == 0

    printed = capsys.readouterr().out
    assert "environment TUIST_RUNNERS_NAMESPACE" in printed
    assert "--dind-image" in printed
