"""Macs with a past, on their way through the whole bootstrap: what others and older releases left, wrong passwords, encrypted disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bramley.api.names import host
from bramley.base.errors import CommandFailed, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import agent_daemon, converge, kcpassword
from bramley.host.spec import Egress
from bramley.host.steps import firewall
from bramley.host.steps.firewall import Firewall
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.scenarios.host_bootstrap.macs import steps
from tests.scenarios.host_steps.macs import kicks, sealed, session
from tests.unit.host.steps import wanted
from tests.unit.host.steps.cutting import PASSWORD, Scene, come_back
from tests.unit.host.test_pf_conf import HISTORIES, filled

ANCHOR = f'anchor "{host.PF_ANCHOR}" all'


# Of these pf would not even take what others wrote, in that order.
REFUSED = (
    "a marked block with lines that a later release no longer writes",
    "lines of others that look like ours",
)


def named(history: dict[str, str]) -> str:
    return history["name"]


@pytest.mark.parametrize("history", [one for one in HISTORIES if one["name"] not in REFUSED], ids=named)  # fmt: skip
async def test_a_mac_with_any_pf_conf_ends_with_one_anchor_in_force(
    history: dict[str, str], tmp_path: Path
) -> None:
    """Started with the file as it was, then made, then started again: whatever pf made of it before, it has one anchor now."""
    line = await wanted.mac(tmp_path)
    line.mac.files.write(host.PF_CONF, filled(history["before"]))
    await restart(line.mac)
    step = Firewall(Egress())

    await converge.apply(line, [step])
    await restart(line.mac)

    assert line.mac.files.read(host.PF_CONF) == filled(history["foreign"]) + firewall.PF_BLOCK
    assert main_rules(line.mac).count(ANCHOR) == 1
    assert line.mac.state["pf"]["enabled"]
    assert line.mac.state["pf"]["rulesets"][host.PF_ANCHOR]["rules"]
    assert (await converge.plan(line, [step])).is_empty


@pytest.mark.parametrize("history", [one for one in HISTORIES if one["name"] in REFUSED], ids=named)
async def test_a_file_that_pf_does_not_take_for_its_other_lines_stays_as_it_is(
    history: dict[str, str], tmp_path: Path
) -> None:
    line = await wanted.mac(tmp_path)
    line.mac.files.write(host.PF_CONF, filled(history["before"]))

    with pytest.raises(
        CommandFailed, match=r"step firewall: .* pfctl does not accept the new file"
    ):
        await converge.apply(line, [Firewall(Egress())])

    assert line.mac.files.read(host.PF_CONF) == filled(history["before"])
    assert ANCHOR not in main_rules(line.mac)


def main_rules(mac: Mac) -> list[str]:
    rules: list[str] = mac.state["pf"]["rulesets"][""]["rules"]
    return rules


async def restart(mac: Mac) -> None:
    mac.reboot()
    await come_back(mac)


def encrypted(mac: Mac) -> None:
    """Let somebody have turned FileVault on."""
    with mac.change() as state:
        state["filevault"] = True


async def bare(root: Path, settings: Settings | None = None) -> ModelConnection:
    return (await Scene.make(root / "macs", settings=settings)).copy("mac")


async def made(root: Path) -> ModelConnection:
    line = await bare(root)
    await converge.apply(line, steps(root / "files"))
    line.done.clear()
    return line


@pytest.mark.parametrize(
    ("changes", "settings", "told"),
    [
        ({}, {"filevault": True}, "step auto-login: FileVault is not off"),
        ({}, {"macos": "12.7"}, "step preconditions: "),
        ({}, {"architecture": "x86_64"}, "step preconditions: "),
        ({}, {"free_bytes": 1024**3}, "step preconditions: "),
        ({}, {"clock_ahead_seconds": 3600.0}, "step preconditions: "),
        ({"password": Secret("wrong")}, {}, "step sudo: the password is wrong"),
        ({"password": None}, {}, "step sudo: "),
    ],
    ids=["encrypted", "old", "intel", "full", "clock", "wrong password", "no password"],
)
async def test_a_mac_that_cannot_become_one_is_refused_before_anything_is_changed(
    changes: dict[str, Any], settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    line = await bare(tmp_path, Settings(**settings))
    before = line.mac.snapshot()

    with pytest.raises(UnsupportedHost, match=told):
        await converge.apply(line, steps(tmp_path / "files", **changes))

    assert line.mac.snapshot() == before
    assert line.done == []


async def test_a_wrong_password_stops_a_mac_whose_sudo_asks_for_none(tmp_path: Path) -> None:
    """Nothing would notice it but the directory, and after it loginwindow, which seals it."""
    line = await bare(tmp_path)
    await converge.apply(line, steps(tmp_path / "files")[:2])

    with pytest.raises(UnsupportedHost, match="step auto-login: the password is wrong"):
        await converge.apply(line, steps(tmp_path / "files", password=Secret("wrong")))

    assert line.mac.files.read(host.KCPASSWORD) is None
    assert kicks(line) == 0


async def test_a_password_that_is_sealed_after_the_bootstrap_is_told_and_then_mended(
    tmp_path: Path,
) -> None:
    """Everything else is as wanted, and the session lives on: only the file tells that the next login fails."""
    line = await made(tmp_path)
    sealed(line.mac)
    before = kicks(line)

    planned = await converge.plan(line, steps(tmp_path / "files", password=None))
    refused = [one.step.name for one in planned.steps if one.refusal]
    await converge.apply(line, steps(tmp_path / "files"))

    assert refused == ["auto-login"]
    assert line.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
    assert (session(line), kicks(line)) == ("m1", before)


@pytest.mark.parametrize("change", [encrypted, sealed])
async def test_a_node_that_cannot_log_in_again_gets_its_new_agent_and_is_told(
    change: Callable[[Mac], None], tmp_path: Path
) -> None:
    line = await made(tmp_path)
    change(line.mac)
    boot, before = line.mac.state["boot"]["boot_id"], kicks(line)
    newer = wanted.agent(tmp_path, wanted.NEWER_AGENT)

    with pytest.raises(UnsupportedHost, match=r"step auto-login: (FileVault|macOS)"):
        await converge.apply(line, steps(tmp_path / "files", password=None, agent=newer))

    assert line.mac.files.target(host.AGENT_CURRENT) == host.agent_release(wanted.NEWER_AGENT)
    assert not agent_daemon.is_restart_due(await line.probe(agent_daemon.RESTART_PROBES))
    assert (session(line), kicks(line)) == ("m1", before)
    assert line.mac.state["boot"]["boot_id"] == boot


@pytest.mark.parametrize("password", [Secret(PASSWORD), Secret("another"), None], ids=str)
async def test_a_healthy_mac_is_verified_again_without_a_kick(
    password: Secret | None, tmp_path: Path
) -> None:
    """As after its Node was deleted: whatever password is at hand."""
    line = await made(tmp_path)
    boot, before = line.mac.state["boot"]["boot_id"], kicks(line)

    report = await converge.apply(line, steps(tmp_path / "files", password=password))

    assert (report.is_changed, line.done) == (False, [])
    assert (kicks(line), line.mac.state["boot"]["boot_id"]) == (before, boot)
