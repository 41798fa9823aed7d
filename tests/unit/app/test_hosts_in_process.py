"""What `bramley host plan` shows is what `apply` does: the steps that are meant, and parts that are wanted no more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from bramley.app import hosts
from bramley.app.agent_access import Cluster
from bramley.app.hosts import ApplyOptions
from bramley.base.errors import BadConfiguration, UnsupportedHost
from bramley.host import claim, sequence
from bramley.host.commands import Command, Probe
from bramley.host.connection import Connection
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.log_rotation import LogRotation
from bramley.host.steps.sleep import Sleep
from tests.unit.host.steps import wanted

WANTED: list[Step] = [Hostname("mac-01"), Sleep()]


def options(**given: tuple[str, ...]) -> ApplyOptions:
    return ApplyOptions(config=Path("mac.yaml"), **given)  # type: ignore[arg-type]


async def test_a_plan_shows_the_steps_that_are_meant_and_what_is_wanted_no_more(
    tmp_path: Path,
) -> None:
    mac = await wanted.mac(tmp_path, LogRotation())

    async def names(asked: ApplyOptions) -> list[str]:
        return [one.step.name for one in (await hosts.plan_steps(mac, WANTED, asked)).steps]

    assert await names(options()) == ["hostname", "sleep", "without-log-rotation"]
    assert await names(options(skip=("sleep",))) == ["hostname", "without-log-rotation"]
    assert await names(options(skip=("log-rotation",))) == ["hostname", "sleep"]
    assert await names(options(only=("sleep",))) == ["sleep"]
    assert mac.done == []


async def test_an_identity_is_made_when_the_mac_refuses_nothing(tmp_path: Path) -> None:
    mac = await wanted.mac(tmp_path)
    spec = replace(wanted.spec(tmp_path), kubeconfig=None)
    # Its clock is not of this time.
    asked = replace(options(skip=("preconditions",)), cluster=Cluster(tmp_path / "cluster"))
    with mac.mac.change() as state:
        state["filevault"] = True

    with pytest.raises(UnsupportedHost, match="FileVault"):
        await hosts.with_identity(mac, spec, asked)

    with mac.mac.change() as state:
        state["filevault"] = False
    with pytest.raises(BadConfiguration, match="/cluster"):
        await hosts.with_identity(mac, spec, asked)
    assert mac.done == []


class Line:
    """Counts the questions on the way to a Mac."""

    def __init__(self, mac: Connection) -> None:
        self._mac = mac
        self.host = mac.host
        self.probes = 0

    async def do(self, command: Command) -> None:
        await self._mac.do(command)

    async def probe(self, probes: Collection[Probe]) -> Facts:
        self.probes += 1
        return await self._mac.probe(probes)


async def test_a_mac_that_is_as_wanted_is_asked_once_also_where_an_identity_was_made_meanwhile(
    tmp_path: Path,
) -> None:
    mac = await wanted.mac(tmp_path)
    spec = wanted.spec(tmp_path, tailnet=None, node_exporter=None, agent=None, interpreter=None)
    asked = options(skip=("preconditions",))
    await hosts.apply_steps(mac, sequence.steps(spec), asked)
    mac.done.clear()
    line = Line(mac)

    facts = await hosts.check_steps(line, replace(spec, kubeconfig=None), asked)
    another = replace(spec, kubeconfig=wanted.identity(born=wanted.BORN + 60))
    report = await hosts.apply_steps(line, sequence.steps(another), asked, facts=facts)

    assert (report.is_changed, mac.done, line.probes) == (False, [], 1)


async def test_a_mac_that_changed_since_it_was_asked_is_asked_again_before_it_is_touched(
    tmp_path: Path,
) -> None:
    mac = await wanted.mac(tmp_path)
    spec = replace(wanted.spec(tmp_path), kubeconfig=None)
    asked = options(only=("hostname", "sleep"))
    facts = await hosts.check_steps(mac, spec, asked)
    await hosts.apply_steps(mac, sequence.steps(spec), asked)
    mac.done.clear()

    report = await hosts.apply_steps(mac, sequence.steps(spec), asked, facts=facts)

    assert (report.is_changed, mac.done) == (False, [])


async def test_what_is_wanted_no_more_goes_last_and_a_second_run_changes_nothing(
    tmp_path: Path,
) -> None:
    mac = await wanted.mac(tmp_path, LogRotation())

    report = await hosts.apply_steps(mac, WANTED, options())

    assert list(report.changed) == ["hostname", "sleep", "without-log-rotation"]
    assert all(report.changed.values())
    assert mac.mac.files.exists(claim.CLAIM_FILE.path)
    mac.done.clear()
    assert (await hosts.plan_steps(mac, WANTED, options())).is_empty
    assert not (await hosts.apply_steps(mac, WANTED, options())).is_changed
    assert mac.done == []
    assert drift.read_stamps(await mac.probe([drift.STAMPS_FILE])) == {}
