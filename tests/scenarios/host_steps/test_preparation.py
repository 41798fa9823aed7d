"""The preparation of a Mac by hand: a mistyped password is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.base.errors import BadConfiguration, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import kcpassword, preparation
from bramley.host.commands import Command
from bramley.host.preparation import prepare
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from tests.scenarios.host_steps.macs import (
    REJECTED,
    changing,
    is_check,
    loginwindow_restarts,
    make_mac,
    reboot_and_reject_password,
    session,
    steps,
)
from tests.unit.host.steps.interruption import PASSWORD

RIGHT = Secret(PASSWORD)
ENCODED = kcpassword.encode(RIGHT)


async def test_bare_mac_is_prepared(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path)

    report = await prepare(connection, "m1", RIGHT)

    assert report.is_changed
    assert session(connection) == "m1"
    assert connection.mac.files.read(host.KCPASSWORD) == ENCODED
    assert connection.mac.files.is_file(host.sudoers("m1"))


async def test_sudo_may_be_prepared_alone(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path)

    report = await prepare(connection, "m1", RIGHT, selected=preparation.steps("m1", RIGHT)[:1])

    assert list(report.changed) == ["sudo"]
    assert connection.mac.files.is_file(host.sudoers("m1"))
    assert not connection.mac.files.exists(host.KCPASSWORD)


@pytest.mark.parametrize("before", [0, 1, 2], ids=["bare", "with sudo", "prepared"])
async def test_mistyped_password_is_refused_and_nothing_is_written(
    before: int, tmp_path: Path
) -> None:
    """Passwordless sudo would accept any password, and an existing configuration would hide a wrong one."""
    connection = await make_mac(tmp_path, *steps()[:before])
    before_run = connection.mac.snapshot()

    with pytest.raises(
        UnsupportedHost, match="m1@mac: step auto-login: the password is wrong"
    ) as caught:
        await prepare(connection, "m1", Secret("mistyped"))

    assert connection.mac.snapshot() == before_run
    assert connection.mac.state["users"]["m1"]["wrong_count"] == 1
    assert "mistyped" not in repr(caught.value)


async def test_prepared_mac_is_not_changed(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps())
    before_run = connection.mac.snapshot()

    report = await prepare(connection, "m1", RIGHT)

    assert not report.is_changed
    assert connection.mac.snapshot() == before_run
    assert loginwindow_restarts(connection) == 1


async def test_rejected_password_is_replaced(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, *steps(), change=reboot_and_reject_password)

    await prepare(connection, "m1", RIGHT)

    assert connection.mac.files.read(host.KCPASSWORD) == ENCODED
    assert session(connection) == "m1"


async def test_stored_wrong_password_is_replaced(tmp_path: Path) -> None:
    """Stored without a check; a session that was opened by hand hides it until the next boot."""
    connection = await make_mac(tmp_path, *steps())
    connection.mac.files.write(host.KCPASSWORD, kcpassword.encode(Secret("wrong")), mode=0o600)

    report = await prepare(connection, "m1", RIGHT)

    assert report.changed["auto-login"] == 1
    assert connection.mac.files.read(host.KCPASSWORD) == ENCODED
    assert loginwindow_restarts(connection) == 1


async def test_password_that_loginwindow_rejects_is_reported_as_wrong(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path)
    mac = connection.mac
    checks: list[Command] = []

    class PasswordChangingConnection(ModelConnection):
        async def execute(self, command: Command) -> None:
            await super().execute(command)
            checks.extend([command] if is_check(command) else [])
            # The checks of the preparation, of the step sudo, and of the step auto-login.
            if len(checks) == 3 and is_check(command):
                changing(lambda state: state["users"]["m1"].update(password="another"))(mac)

    with pytest.raises(UnsupportedHost, match=r"auto-login: the password is wrong: loginwindow"):
        await prepare(PasswordChangingConnection(mac, clock=mac._clock), "m1", RIGHT)

    assert mac.files.read(host.KCPASSWORD) == REJECTED


async def test_file_vault_is_refused_before_the_password_is_tried(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, settings=Settings(filevault=True))

    with pytest.raises(
        UnsupportedHost, match="m1@mac: step auto-login: FileVault is not permanently off"
    ):
        await prepare(connection, "m1", RIGHT)

    assert connection.done == []


async def test_file_vault_does_not_matter_without_the_step_auto_login(tmp_path: Path) -> None:
    connection = await make_mac(tmp_path, settings=Settings(filevault=True))

    await prepare(connection, "m1", RIGHT, selected=steps()[:1])
    with pytest.raises(UnsupportedHost, match="m1@mac: step sudo: the password is wrong"):
        await prepare(connection, "m1", Secret("mistyped"), selected=steps()[:1])

    assert connection.mac.files.is_file(host.sudoers("m1"))


@pytest.mark.parametrize("password", ["", "<sealed>"])
async def test_invalid_password_is_not_tried(password: str, tmp_path: Path) -> None:
    connection = await make_mac(tmp_path)

    with pytest.raises(BadConfiguration):
        await prepare(connection, "m1", Secret(password))

    assert connection.probes == 0
    assert connection.done == []
