"""A Mac prepared by hand: whoever mistypes the password is told, and nothing is written; whoever does not has it in place."""

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
    SEALED,
    a_mac,
    changing,
    is_check,
    kicks,
    restarted_and_sealed,
    session,
    steps,
)
from tests.unit.host.steps.cutting import PASSWORD

RIGHT = Secret(PASSWORD)
KEPT = kcpassword.encode(RIGHT)


async def test_a_bare_mac_is_prepared(tmp_path: Path) -> None:
    line = await a_mac(tmp_path)

    report = await prepare(line, "m1", RIGHT)

    assert report.is_changed
    assert session(line) == "m1"
    assert line.mac.files.read(host.KCPASSWORD) == KEPT
    assert line.mac.files.is_file(host.sudoers("m1"))


async def test_sudo_may_be_prepared_alone(tmp_path: Path) -> None:
    line = await a_mac(tmp_path)

    report = await prepare(line, "m1", RIGHT, meant=preparation.steps("m1", RIGHT)[:1])

    assert list(report.changed) == ["sudo"]
    assert line.mac.files.is_file(host.sudoers("m1"))
    assert not line.mac.files.exists(host.KCPASSWORD)


@pytest.mark.parametrize("before", [0, 1, 2], ids=["bare", "with sudo", "prepared"])
async def test_a_mistyped_password_is_told_and_nothing_is_written(
    before: int, tmp_path: Path
) -> None:
    """Where sudo asks for none it would take any, and what is in place already would hide it."""
    line = await a_mac(tmp_path, *steps()[:before])
    was = line.mac.snapshot()

    with pytest.raises(
        UnsupportedHost, match="m1@mac: step auto-login: the password is wrong"
    ) as caught:
        await prepare(line, "m1", Secret("mistyped"))

    assert line.mac.snapshot() == was
    assert line.mac.state["users"]["m1"]["wrong_count"] == 1
    assert "mistyped" not in repr(caught.value)


async def test_a_prepared_mac_is_left_as_it_is(tmp_path: Path) -> None:
    line = await a_mac(tmp_path, *steps())
    was = line.mac.snapshot()

    report = await prepare(line, "m1", RIGHT)

    assert not report.is_changed
    assert line.mac.snapshot() == was
    assert kicks(line) == 1


async def test_a_password_that_was_sealed_is_replaced(tmp_path: Path) -> None:
    line = await a_mac(tmp_path, *steps(), change=restarted_and_sealed)

    await prepare(line, "m1", RIGHT)

    assert line.mac.files.read(host.KCPASSWORD) == KEPT
    assert session(line) == "m1"


async def test_a_wrong_password_that_waits_for_the_next_login_is_replaced(tmp_path: Path) -> None:
    """Left by a preparation without a check: the session of somebody who logged in by hand hides it until the Mac restarts."""
    line = await a_mac(tmp_path, *steps())
    line.mac.files.write(host.KCPASSWORD, kcpassword.encode(Secret("wrong")), mode=0o600)

    report = await prepare(line, "m1", RIGHT)

    assert report.changed["auto-login"] == 1
    assert line.mac.files.read(host.KCPASSWORD) == KEPT
    assert kicks(line) == 1


async def test_a_password_that_loginwindow_does_not_take_is_told_as_wrong(tmp_path: Path) -> None:
    line = await a_mac(tmp_path)
    mac = line.mac
    checks: list[Command] = []

    class Meddling(ModelConnection):
        async def do(self, command: Command) -> None:
            await super().do(command)
            checks.extend([command] if is_check(command) else [])
            # By hand, before sudo, and before it is written.
            if len(checks) == 3 and is_check(command):
                changing(lambda state: state["users"]["m1"].update(password="another"))(mac)

    with pytest.raises(UnsupportedHost, match=r"auto-login: the password is wrong: loginwindow"):
        await prepare(Meddling(mac, clock=mac._clock), "m1", RIGHT)

    assert mac.files.read(host.KCPASSWORD) == SEALED


async def test_an_encrypted_disk_is_told_before_the_password_is_tried(tmp_path: Path) -> None:
    line = await a_mac(tmp_path, settings=Settings(filevault=True))

    with pytest.raises(UnsupportedHost, match="m1@mac: step auto-login: FileVault is not off"):
        await prepare(line, "m1", RIGHT)

    assert line.done == []


async def test_an_encrypted_disk_stops_nobody_who_leaves_automatic_login_out(
    tmp_path: Path,
) -> None:
    line = await a_mac(tmp_path, settings=Settings(filevault=True))

    await prepare(line, "m1", RIGHT, meant=steps()[:1])
    with pytest.raises(UnsupportedHost, match="m1@mac: step sudo: the password is wrong"):
        await prepare(line, "m1", Secret("mistyped"), meant=steps()[:1])

    assert line.mac.files.is_file(host.sudoers("m1"))


@pytest.mark.parametrize("password", ["", "<sealed>"])
async def test_what_cannot_be_a_password_is_not_tried(password: str, tmp_path: Path) -> None:
    line = await a_mac(tmp_path)

    with pytest.raises(BadConfiguration):
        await prepare(line, "m1", Secret(password))

    assert line.probes == 0
    assert line.done == []
