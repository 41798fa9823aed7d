"""Automatic login on the model of a Mac: right, wrong and rejected passwords, and VMs that must keep their session."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from bramley.api.names import host, launchd
from bramley.base.errors import HostUnreachable, NotConverged, TimedOut, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import converge, kcpassword
from bramley.host.commands import Command, Probe, Write
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.local_network import LocalNetwork
from bramley.sim.macos import faults
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Cut, CutPoint
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.scenarios.host_steps.macs import (
    REJECTED,
    VM,
    VM_OF_ANOTHER,
    changing,
    is_check,
    loginwindow_restarts,
    make_mac,
    reboot,
    reboot_and_reject_password,
    reject_password,
    session,
    steps,
)
from tests.unit.host.steps.interruption import PASSWORD


async def test_user_of_a_bare_mac_is_logged_in(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path)

    await converge.apply(connection, steps())

    assert session(connection) == "m1"
    assert connection.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
    assert loginwindow_restarts(connection) == 1


async def test_wrong_password_is_tried_once_and_nothing_is_written(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path)
    before = connection.mac.snapshot()

    with pytest.raises(UnsupportedHost, match="step sudo: the password is wrong"):
        await converge.apply(connection, steps("wrong"))

    assert connection.mac.snapshot() == before
    assert connection.mac.state["users"]["m1"]["wrong_count"] == 1
    assert connection.done == []


async def test_wrong_password_is_detected_on_a_mac_with_passwordless_sudo(tmp_path: Path) -> None:
    """Only the directory service detects it: sudo would accept any, and loginwindow reports nothing."""
    connection = await make_mac(tmp_path, *steps()[:1])

    with pytest.raises(UnsupportedHost, match="step auto-login: the password is wrong"):
        await converge.apply(connection, steps("wrong"))

    assert connection.mac.files.read(host.KCPASSWORD) is None
    assert loginwindow_restarts(connection) == 0
    assert connection.mac.state["users"]["m1"]["wrong_count"] == 1


async def test_password_that_loginwindow_rejects_is_reported_as_wrong(tmp_path: Path) -> None:
    """The password was changed between the check and the login: only the marker shows that."""
    connection = await make_mac(tmp_path, *steps()[:1])
    mac = connection.mac

    class PasswordChangingConnection(ModelConnection):
        async def execute(self, command: Command) -> None:
            await super().execute(command)
            if is_check(command):
                changing(lambda state: state["users"]["m1"].update(password="another"))(mac)

    changing_connection = PasswordChangingConnection(mac, clock=mac._clock)
    with pytest.raises(UnsupportedHost, match=r"auto-login: the password is wrong: loginwindow"):
        await converge.apply(changing_connection, steps())

    assert mac.files.read(host.KCPASSWORD) == REJECTED


async def test_rejected_password_is_replaced(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps(), change=reboot_and_reject_password)

    await converge.apply(connection, steps())

    assert session(connection) == "m1"
    assert connection.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))


async def test_password_rejected_after_the_setup_is_reported_by_every_run(tmp_path: Path) -> None:
    """All else is converged and the session exists; the next login would fail, and no password is given."""
    connection = await make_mac(tmp_path, *steps(), change=reject_password)

    planned = await converge.plan(connection, steps(None))
    with pytest.raises(
        UnsupportedHost, match="has marked the password in /etc/kcpassword as wrong"
    ):
        await converge.apply(connection, steps(None))

    assert [bool(one.refusal) for one in planned.steps] == [False, True]
    assert not planned.is_empty
    assert session(connection) == "m1"


async def test_rejected_password_is_replaced_without_ending_the_session(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps(), change=reject_password)

    await converge.apply(connection, steps())

    assert connection.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
    assert (session(connection), loginwindow_restarts(connection)) == ("m1", 1)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(filevault=True),
        Settings(filevault_after="restart"),
        Settings(filevault_after="login"),
    ],
)
async def test_file_vault_that_is_on_or_scheduled_is_refused(
    settings: Settings, tmp_path: Path
) -> None:
    connection = await make_mac(tmp_path, settings=settings)

    with pytest.raises(UnsupportedHost, match="FileVault is not permanently off"):
        await converge.apply(connection, steps())

    assert connection.done == []


@pytest.mark.parametrize("password", [PASSWORD, None, "anything else"])
async def test_converged_mac_is_verified_without_a_restart_of_loginwindow(
    password: str | None, tmp_path: Path
) -> None:
    """With any password, as after its Node was deleted: nothing is written and the session stays."""
    connection = await make_mac(tmp_path, *steps())

    report = await converge.apply(connection, steps(password))

    assert not report.is_changed
    assert connection.done == []
    assert loginwindow_restarts(connection) == 1


async def test_lost_session_is_restored_without_a_password(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps(), change=reboot)

    await converge.apply(connection, steps(None))

    assert session(connection) == "m1"


@pytest.mark.parametrize("vm", [VM, VM_OF_ANOTHER], ids=["own", "of another user"])
async def test_loginwindow_is_not_restarted_while_vms_run(
    vm: dict[str, Any], tmp_path: Path
) -> None:
    """A VM started over SSH survives the end of a session, but not a restart of loginwindow."""
    connection = await make_mac(tmp_path, *steps(), change=reboot)
    changing(lambda state: state["processes"].append(vm))(connection.mac)

    report = await converge.apply(connection, steps())

    assert report.pending == (
        "LoginPending: m1 is not logged in, and loginwindow is not restarted while VMs run",
    )
    assert loginwindow_restarts(connection) == 1
    changing(lambda state: state["processes"].clear())(connection.mac)
    assert (await converge.apply(connection, steps())).pending == ()
    assert session(connection) == "m1"


@pytest.mark.parametrize("step", [AutoLogin("m1"), LocalNetwork("m1")], ids=lambda step: step.name)
async def test_vm_that_starts_after_the_probe_keeps_running(step: Step, tmp_path: Path) -> None:
    """The agent runs while steps are applied, so a Mac that was idle when probed may run a VM."""
    connection = await make_mac(tmp_path, *steps(), change=reboot)
    mac, boot = connection.mac, connection.mac.state["boot"]["boot_id"]

    class VmStartingConnection(ModelConnection):
        async def probe(self, probes: Collection[Probe]) -> Facts:
            facts = await super().probe(probes)
            changing(lambda state: state["processes"].append(VM))(mac)
            return facts

    with pytest.raises(TimedOut, match="no VM has started since"):
        await converge.apply(VmStartingConnection(mac, clock=mac._clock), [step])

    assert loginwindow_restarts(connection) == 1
    assert mac.state["boot"]["boot_id"] == boot


async def test_missing_session_is_an_error(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps()[:1], settings=Settings(login_seconds=3600))

    with pytest.raises(NotConverged, match="m1 was not logged in"):
        await converge.apply(connection, steps())


async def test_refused_restart_of_loginwindow_is_reported_without_a_session(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps()[:1])
    faults.protect(connection.mac, launchd.LOGINWINDOW)

    with pytest.raises(NotConverged, match="m1 was not logged in") as caught:
        await converge.apply(connection, steps())

    assert 'Could not kickstart service "com.apple.loginwindow": 1: ' in str(caught.value)
    assert loginwindow_restarts(connection) == 0


async def test_refused_restart_of_loginwindow_does_not_matter_with_a_session(
    tmp_path: Path,
) -> None:
    """On a Mac with a display the boot logs the user in, which is in progress here."""
    settings = Settings(headless=False, login_seconds=20, boot_seconds=0)
    connection = await make_mac(tmp_path, *steps(), settings=settings, change=Mac.reboot)
    faults.protect(connection.mac, launchd.LOGINWINDOW)

    await converge.apply(connection, steps())

    assert (session(connection), loginwindow_restarts(connection)) == ("m1", 1)


async def test_wrong_password_is_tried_at_most_twice_after_an_interruption(tmp_path: Path) -> None:
    """The answer was lost: the second run is the second and last attempt."""
    connection = await make_mac(tmp_path)
    connection.faults.at(is_check, Cut(CutPoint.BEFORE))

    with pytest.raises(HostUnreachable):
        await converge.apply(connection, steps("wrong"))
    with pytest.raises(UnsupportedHost):
        await converge.apply(connection, steps("wrong"))

    assert connection.mac.state["users"]["m1"]["wrong_count"] <= 2


async def test_user_with_another_uid_is_logged_in(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, settings=Settings(uid=502))

    await converge.apply(connection, steps())

    assert session(connection) == "m1"
    assert not (await converge.apply(connection, steps())).is_changed


@pytest.mark.parametrize(("headless", "restarts"), [(True, 2), (False, 1)])
async def test_fresh_mac_is_rebooted_for_its_allowlist_and_logged_in_again(
    headless: bool, restarts: int, tmp_path: Path
) -> None:
    """With a display the boot logs the user in, and a restart of loginwindow would end that session."""
    settings = Settings(headless=headless, login_seconds=0)
    connection = await make_mac(tmp_path, *steps(), settings=settings)
    boot = connection.mac.state["boot"]["boot_id"]

    report = await converge.apply(connection, [LocalNetwork("m1")])

    assert connection.mac.state["boot"]["boot_id"] != boot
    assert connection.mac.state["local_network"]["active"]
    assert (session(connection), loginwindow_restarts(connection)) == ("m1", restarts)
    assert report.pending == ()


async def test_mac_with_vms_is_not_rebooted_and_reports_a_pending_reboot(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps())
    changing(lambda state: state["processes"].append(VM))(connection.mac)
    boot = connection.mac.state["boot"]["boot_id"]

    report = await converge.apply(connection, [LocalNetwork("m1")])

    assert connection.mac.state["boot"]["boot_id"] == boot
    assert [reason.partition(":")[0] for reason in report.pending] == ["RebootPending"]
    assert not (await converge.apply(connection, [LocalNetwork("m1")])).is_changed


async def test_no_command_and_no_error_shows_the_password(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path)
    with pytest.raises(UnsupportedHost) as caught:
        await converge.apply(connection, steps("canary-password"))
    await converge.apply(connection, steps())

    shown = repr(connection.done) + repr(caught.value) + repr(caught.value.__cause__)
    assert "canary-password" not in shown
    assert PASSWORD not in shown
    assert any(isinstance(command, Write) for command in connection.done)
