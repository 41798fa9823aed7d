"""`bramley host plan` shows what `apply` does: the selected steps, and the removal of retired parts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from bramley.app import hosts
from bramley.app.agent_access import Cluster
from bramley.app.hosts import ApplyOptions
from bramley.base.errors import BadConfiguration, UnsupportedHost
from bramley.host import claim, drift, sequence
from bramley.host.commands import Command, Probe
from bramley.host.connection import Batch, BatchResult, Connection, OnStarted
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.log_rotation import LogRotation
from bramley.host.steps.sleep import Sleep
from tests.unit.host.steps import fixtures

STEPS: list[Step] = [Hostname("mac-01"), Sleep()]


def options(**selection: tuple[str, ...]) -> ApplyOptions:
    return ApplyOptions(config=Path("mac.yaml"), **selection)  # type: ignore[arg-type]


async def test_plan_contains_selected_steps_and_retired_parts(tmp_path: Path) -> None:
    mac = await fixtures.mac(tmp_path, LogRotation())

    async def names(selected: ApplyOptions) -> list[str]:
        return [one.step.name for one in (await hosts.plan_steps(mac, STEPS, selected)).steps]

    assert await names(options()) == ["hostname", "sleep", "without-log-rotation"]
    assert await names(options(skip=("sleep",))) == ["hostname", "without-log-rotation"]
    assert await names(options(skip=("log-rotation",))) == ["hostname", "sleep"]
    assert await names(options(only=("sleep",))) == ["sleep"]
    assert mac.done == []


async def test_identity_is_created_only_for_a_supported_mac(tmp_path: Path) -> None:
    mac = await fixtures.mac(tmp_path)
    spec = replace(fixtures.spec(tmp_path), kubeconfig=None)
    # The simulated Mac has another time, which the preconditions would refuse.
    selected = replace(options(skip=("preconditions",)), cluster=Cluster(tmp_path / "cluster"))
    with mac.mac.change() as state:
        state["filevault"] = True

    with pytest.raises(UnsupportedHost, match="FileVault"):
        await hosts.with_identity(mac, spec, selected)

    with mac.mac.change() as state:
        state["filevault"] = False
    with pytest.raises(BadConfiguration, match="/cluster"):
        await hosts.with_identity(mac, spec, selected)
    assert mac.done == []


class CountingConnection:
    """Counts the probe round trips to a Mac."""

    def __init__(self, mac: Connection) -> None:
        self._mac = mac
        self.host = mac.host
        self.probes = 0

    async def execute(self, command: Command) -> None:
        await self._mac.execute(command)

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        return await self._mac.execute_all(batch, on_started=on_started)

    async def probe(self, probes: Collection[Probe]) -> Facts:
        self.probes += 1
        return await self._mac.probe(probes)


async def test_converged_mac_needs_one_round_trip_also_with_a_new_identity(tmp_path: Path) -> None:
    mac = await fixtures.mac(tmp_path)
    spec = fixtures.spec(tmp_path, tailnet=None, node_exporter=None, agent=None, interpreter=None)
    selected = options(skip=("preconditions",))
    await hosts.apply_steps(mac, sequence.steps(spec), selected)
    mac.done.clear()
    connection = CountingConnection(mac)

    facts = await hosts.check_steps(connection, replace(spec, kubeconfig=None), selected)
    another = replace(spec, kubeconfig=fixtures.agent_kubeconfig(issued=fixtures.ISSUED + 60))
    report = await hosts.apply_steps(connection, sequence.steps(another), selected, facts=facts)

    assert (report.is_changed, mac.done, connection.probes) == (False, [], 1)


async def test_outdated_facts_are_probed_again_before_any_change(tmp_path: Path) -> None:
    mac = await fixtures.mac(tmp_path)
    spec = replace(fixtures.spec(tmp_path), kubeconfig=None)
    selected = options(only=("hostname", "sleep"))
    facts = await hosts.check_steps(mac, spec, selected)
    await hosts.apply_steps(mac, sequence.steps(spec), selected)
    mac.done.clear()

    report = await hosts.apply_steps(mac, sequence.steps(spec), selected, facts=facts)

    assert (report.is_changed, mac.done) == (False, [])


async def test_retired_parts_are_removed_last_and_a_second_run_changes_nothing(
    tmp_path: Path,
) -> None:
    mac = await fixtures.mac(tmp_path, LogRotation())

    report = await hosts.apply_steps(mac, STEPS, options())

    assert list(report.changed) == ["hostname", "sleep", "without-log-rotation"]
    assert all(report.changed.values())
    assert mac.mac.files.exists(claim.CLAIM_FILE.path)
    mac.done.clear()
    assert (await hosts.plan_steps(mac, STEPS, options())).is_empty
    assert not (await hosts.apply_steps(mac, STEPS, options())).is_changed
    assert mac.done == []
    assert drift.read_stamps(await mac.probe([drift.STAMPS_FILE])) == {}


async def test_skipped_firewall_costs_no_further_reboot(tmp_path: Path) -> None:
    mac = await fixtures.mac(tmp_path)
    selected = options(skip=("preconditions", "firewall"))

    report = await hosts.apply_steps(mac, sequence.steps(fixtures.spec(tmp_path)), selected)

    assert fixtures.executed(mac).count("reboot") == 1
    assert report.reboot == "reboot the Mac, so that its Local Network allowlist takes effect"
    assert report.pending == ()
    steps = sequence.steps(fixtures.spec(tmp_path))
    assert (await hosts.plan_steps(mac, steps, selected)).is_converged


async def test_everything_but_the_reboot_is_done_if_it_is_excluded(tmp_path: Path) -> None:
    mac = await fixtures.mac(tmp_path)
    steps = sequence.steps(fixtures.spec(tmp_path))
    selected = replace(options(skip=("preconditions",)), no_reboot=True)

    report = await hosts.apply_steps(mac, steps, selected)

    assert "reboot" not in fixtures.executed(mac)
    assert list(report.changed) == [step.name for step in steps if step.name != "preconditions"]
    assert [pending.partition(":")[0] for pending in report.pending] == ["RebootPending"] * 2
    assert all("--no-reboot" in pending for pending in report.pending)
    planned = await hosts.plan_steps(mac, steps, selected)
    assert (planned.is_empty, planned.pending) == (True, report.pending)
