"""What `bramley host plan` shows is what `apply` does: the steps that are meant, and parts that are wanted no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bramley.app import hosts
from bramley.app.agent_access import Cluster
from bramley.app.hosts import Wish
from bramley.base.errors import BadConfiguration, UnsupportedHost
from bramley.host import claiming, ensuring
from bramley.host.step import Step
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.log_rotation import LogRotation
from bramley.host.steps.sleep import Sleep
from tests.unit.host.steps import wanted

WANTED: list[Step] = [Hostname("mac-01"), Sleep()]


def wish(**given: tuple[str, ...]) -> Wish:
    return Wish(config=Path("mac.yaml"), **given)  # type: ignore[arg-type]


async def test_a_plan_shows_the_steps_that_are_meant_and_what_is_wanted_no_more(
    tmp_path: Path,
) -> None:
    mac = await wanted.mac(tmp_path, LogRotation())

    async def names(asked: Wish) -> list[str]:
        return [one.step.name for one in (await hosts.planned(mac, WANTED, asked)).steps]

    assert await names(wish()) == ["hostname", "sleep", "without-log-rotation"]
    assert await names(wish(skip=("sleep",))) == ["hostname", "without-log-rotation"]
    assert await names(wish(skip=("log-rotation",))) == ["hostname", "sleep"]
    assert await names(wish(only=("sleep",))) == ["sleep"]
    assert mac.done == []


async def test_an_identity_is_made_when_the_mac_refuses_nothing(tmp_path: Path) -> None:
    mac = await wanted.mac(tmp_path)
    spec = replace(wanted.spec(tmp_path), kubeconfig=None)
    # Its clock is not of this time.
    asked = replace(wish(skip=("preconditions",)), cluster=Cluster(tmp_path / "cluster"))
    with mac.mac.change() as state:
        state["filevault"] = True

    with pytest.raises(UnsupportedHost, match="FileVault"):
        await hosts.with_identity(mac, spec, asked)

    with mac.mac.change() as state:
        state["filevault"] = False
    with pytest.raises(BadConfiguration, match="/cluster"):
        await hosts.with_identity(mac, spec, asked)
    assert mac.done == []


async def test_what_is_wanted_no_more_goes_last_and_a_second_run_changes_nothing(
    tmp_path: Path,
) -> None:
    mac = await wanted.mac(tmp_path, LogRotation())

    report = await hosts.applied(mac, WANTED, wish())

    assert list(report.changed) == ["hostname", "sleep", "without-log-rotation"]
    assert all(report.changed.values())
    assert mac.mac.files.exists(claiming.FILE.path)
    mac.done.clear()
    assert (await hosts.planned(mac, WANTED, wish())).is_empty
    assert not (await hosts.applied(mac, WANTED, wish())).is_changed
    assert mac.done == []
    assert await ensuring.stamps_of(mac) == {}
