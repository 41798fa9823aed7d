"""The bootstrap of Macs that are not bare: files of other tools and older releases, wrong passwords, FileVault."""

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
from tests.scenarios.host_steps.macs import loginwindow_restarts, reject_password, session
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import PASSWORD, MacTemplate, wait_until_up
from tests.unit.host.test_pf_conf import HISTORIES, filled

ANCHOR = f'anchor "{host.PF_ANCHOR}" all'


# pf rejects these files because of foreign lines in the wrong order.
REFUSED = (
    "a marked block with lines that a later release no longer writes",
    "foreign lines that resemble ours",
)


def named(history: dict[str, str]) -> str:
    return history["name"]


@pytest.mark.parametrize("history", [one for one in HISTORIES if one["name"] not in REFUSED], ids=named)  # fmt: skip
async def test_any_pf_conf_results_in_one_anchor_in_force(
    history: dict[str, str], tmp_path: Path
) -> None:
    """Booted with the existing file, then configured, then booted again."""
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.write(host.PF_CONF, filled(history["before"]))
    await restart(connection.mac)
    step = Firewall(Egress())

    await converge.apply(connection, [step])
    await restart(connection.mac)

    assert connection.mac.files.read(host.PF_CONF) == filled(history["foreign"]) + firewall.PF_BLOCK
    assert main_rules(connection.mac).count(ANCHOR) == 1
    assert connection.mac.state["pf"]["enabled"]
    assert connection.mac.state["pf"]["rulesets"][host.PF_ANCHOR]["rules"]
    assert (await converge.plan(connection, [step])).is_empty


@pytest.mark.parametrize("history", [one for one in HISTORIES if one["name"] in REFUSED], ids=named)
async def test_pf_conf_that_pf_rejects_stays_unchanged(
    history: dict[str, str], tmp_path: Path
) -> None:
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.write(host.PF_CONF, filled(history["before"]))

    with pytest.raises(
        CommandFailed, match=r"step firewall: .* pfctl does not accept the new file"
    ):
        await converge.apply(connection, [Firewall(Egress())])

    assert connection.mac.files.read(host.PF_CONF) == filled(history["before"])
    assert ANCHOR not in main_rules(connection.mac)


def main_rules(mac: Mac) -> list[str]:
    rules: list[str] = mac.state["pf"]["rulesets"][""]["rules"]
    return rules


async def restart(mac: Mac) -> None:
    mac.reboot()
    await wait_until_up(mac)


def enable_file_vault(mac: Mac) -> None:
    """Turn FileVault on."""
    with mac.change() as state:
        state["filevault"] = True


async def bare(root: Path, settings: Settings | None = None) -> ModelConnection:
    return (await MacTemplate.make(root / "macs", settings=settings)).copy("mac")


async def bootstrapped(root: Path) -> ModelConnection:
    connection = await bare(root)
    await converge.apply(connection, steps(root / "files"))
    connection.done.clear()
    return connection


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, {"filevault": True}, "step auto-login: FileVault is not permanently off"),
        ({}, {"macos": "12.7"}, "step preconditions: "),
        ({}, {"architecture": "x86_64"}, "step preconditions: "),
        ({}, {"free_bytes": 1024**3}, "step preconditions: "),
        ({}, {"clock_ahead_seconds": 3600.0}, "step preconditions: "),
        ({"password": Secret("wrong")}, {}, "step sudo: the password is wrong"),
        ({"password": None}, {}, "step sudo: "),
    ],
    ids=["encrypted", "old", "intel", "full", "clock", "wrong password", "no password"],
)
async def test_unsupported_mac_is_refused_before_any_change(
    changes: dict[str, Any], settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    connection = await bare(tmp_path, Settings(**settings))
    before = connection.mac.snapshot()

    with pytest.raises(UnsupportedHost, match=message):
        await converge.apply(connection, steps(tmp_path / "files", **changes))

    assert connection.mac.snapshot() == before
    assert connection.done == []


async def test_wrong_password_is_refused_on_a_mac_with_passwordless_sudo(tmp_path: Path) -> None:
    """Only the directory service detects it, and later loginwindow, which marks it as rejected."""
    connection = await bare(tmp_path)
    await converge.apply(connection, steps(tmp_path / "files")[:2])

    with pytest.raises(UnsupportedHost, match="step auto-login: the password is wrong"):
        await converge.apply(connection, steps(tmp_path / "files", password=Secret("wrong")))

    assert connection.mac.files.read(host.KCPASSWORD) is None
    assert loginwindow_restarts(connection) == 0


async def test_password_rejected_after_the_bootstrap_is_reported_and_replaced(
    tmp_path: Path,
) -> None:
    """All else is converged and the session exists: only the file shows that the next login fails."""
    connection = await bootstrapped(tmp_path)
    reject_password(connection.mac)
    before = loginwindow_restarts(connection)

    planned = await converge.plan(connection, steps(tmp_path / "files", password=None))
    refused = [one.step.name for one in planned.steps if one.refusal]
    await converge.apply(connection, steps(tmp_path / "files"))

    assert refused == ["auto-login"]
    assert connection.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
    assert (session(connection), loginwindow_restarts(connection)) == ("m1", before)


@pytest.mark.parametrize("change", [enable_file_vault, reject_password])
async def test_node_without_automatic_login_gets_its_new_agent_and_an_error(
    change: Callable[[Mac], None], tmp_path: Path
) -> None:
    connection = await bootstrapped(tmp_path)
    change(connection.mac)
    boot, before = connection.mac.state["boot"]["boot_id"], loginwindow_restarts(connection)
    newer = fixtures.agent(tmp_path, fixtures.NEWER_AGENT)

    with pytest.raises(UnsupportedHost, match=r"step auto-login: (FileVault|macOS)"):
        await converge.apply(connection, steps(tmp_path / "files", password=None, agent=newer))

    assert connection.mac.files.target(host.AGENT_CURRENT) == host.agent_release(
        fixtures.NEWER_AGENT
    )
    assert not agent_daemon.is_restart_due(await connection.probe(agent_daemon.RESTART_PROBES))
    assert (session(connection), loginwindow_restarts(connection)) == ("m1", before)
    assert connection.mac.state["boot"]["boot_id"] == boot


@pytest.mark.parametrize("password", [Secret(PASSWORD), Secret("another"), None], ids=str)
async def test_converged_mac_is_verified_without_a_restart_of_loginwindow(
    password: Secret | None, tmp_path: Path
) -> None:
    """With any password, as after its Node was deleted."""
    connection = await bootstrapped(tmp_path)
    boot, before = connection.mac.state["boot"]["boot_id"], loginwindow_restarts(connection)

    report = await converge.apply(connection, steps(tmp_path / "files", password=password))

    assert (report.is_changed, connection.done) == (False, [])
    assert (loginwindow_restarts(connection), connection.mac.state["boot"]["boot_id"]) == (
        before,
        boot,
    )
