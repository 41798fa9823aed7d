"""Automatic login on the model of a Mac: right and wrong passwords, sealed ones, VMs that must not lose their session."""

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
from bramley.sim.macos.faults import Cut, Moment
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.scenarios.host_steps.macs import (
    SEALED,
    VM,
    VM_OF_ANOTHER,
    a_mac,
    changing,
    is_check,
    kicks,
    reboot,
    restarted_and_sealed,
    sealed,
    session,
    steps,
)
from tests.unit.host.steps.cutting import PASSWORD


async def test_a_bare_mac_logs_its_user_in(tmp_path: Path) -> None:
    line = await a_mac(tmp_path)

    await converge.apply(line, steps())

    assert session(line) == "m1"
    assert line.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
    assert kicks(line) == 1


async def test_a_wrong_password_is_tried_once_and_nothing_is_written(tmp_path: Path) -> None:
    line = await a_mac(tmp_path)
    before = line.mac.snapshot()

    with pytest.raises(UnsupportedHost, match="step sudo: the password is wrong"):
        await converge.apply(line, steps("wrong"))

    assert line.mac.snapshot() == before
    assert line.mac.state["users"]["m1"]["wrong_count"] == 1
    assert line.done == []


async def test_a_wrong_password_is_found_where_sudo_asks_for_none(tmp_path: Path) -> None:
    """Only the directory tells: sudo would take any, and loginwindow would seal it without a word."""
    line = await a_mac(tmp_path, *steps()[:1])

    with pytest.raises(UnsupportedHost, match="step auto-login: the password is wrong"):
        await converge.apply(line, steps("wrong"))

    assert line.mac.files.read(host.KCPASSWORD) is None
    assert kicks(line) == 0
    assert line.mac.state["users"]["m1"]["wrong_count"] == 1


async def test_a_password_that_loginwindow_does_not_take_is_told_as_wrong(tmp_path: Path) -> None:
    """The directory took it, and somebody changed it before loginwindow tried: only the marker shows that."""
    line = await a_mac(tmp_path, *steps()[:1])
    mac = line.mac

    class Meddling(ModelConnection):
        async def do(self, command: Command) -> None:
            await super().do(command)
            if is_check(command):
                changing(lambda state: state["users"]["m1"].update(password="another"))(mac)

    meddled = Meddling(mac, clock=mac._clock)
    with pytest.raises(UnsupportedHost, match=r"auto-login: the password is wrong: loginwindow"):
        await converge.apply(meddled, steps())

    assert mac.files.read(host.KCPASSWORD) == SEALED


async def test_a_password_that_was_sealed_earlier_is_replaced(tmp_path: Path) -> None:
    line = await a_mac(tmp_path, *steps(), change=restarted_and_sealed)

    await converge.apply(line, steps())

    assert session(line) == "m1"
    assert line.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))


async def test_a_password_sealed_after_the_setup_is_told_at_every_later_look(
    tmp_path: Path,
) -> None:
    """Everything else is right and the session lives; the next login would fail, and no password is at hand."""
    line = await a_mac(tmp_path, *steps(), change=sealed)

    planned = await converge.plan(line, steps(None))
    with pytest.raises(UnsupportedHost, match="mark of a wrong password"):
        await converge.apply(line, steps(None))

    assert [bool(one.refusal) for one in planned.steps] == [False, True]
    assert not planned.is_empty
    assert session(line) == "m1"


async def test_a_password_sealed_under_a_living_session_is_replaced_without_ending_it(
    tmp_path: Path,
) -> None:
    line = await a_mac(tmp_path, *steps(), change=sealed)

    await converge.apply(line, steps())

    assert line.mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
    assert (session(line), kicks(line)) == ("m1", 1)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(filevault=True),
        Settings(filevault_after="restart"),
        Settings(filevault_after="login"),
    ],
)
async def test_a_mac_whose_disk_is_encrypted_or_will_be_is_refused(
    settings: Settings, tmp_path: Path
) -> None:
    line = await a_mac(tmp_path, settings=settings)

    with pytest.raises(UnsupportedHost, match="FileVault is not off"):
        await converge.apply(line, steps())

    assert line.done == []


@pytest.mark.parametrize("password", [PASSWORD, None, "anything else"])
async def test_a_healthy_mac_is_verified_again_without_a_kick(
    password: str | None, tmp_path: Path
) -> None:
    """As when its Node was deleted: whatever password is at hand, nothing is written and nobody is logged out."""
    line = await a_mac(tmp_path, *steps())

    report = await converge.apply(line, steps(password))

    assert not report.is_changed
    assert line.done == []
    assert kicks(line) == 1


async def test_a_session_that_was_lost_comes_back_without_a_password(tmp_path: Path) -> None:
    line = await a_mac(tmp_path, *steps(), change=reboot)

    await converge.apply(line, steps(None))

    assert session(line) == "m1"


@pytest.mark.parametrize("vm", [VM, VM_OF_ANOTHER], ids=["own", "of another user"])
async def test_loginwindow_is_not_restarted_while_vms_run(
    vm: dict[str, Any], tmp_path: Path
) -> None:
    """The VM of a user over SSH outlives the console; it would not outlive a kick."""
    line = await a_mac(tmp_path, *steps(), change=reboot)
    changing(lambda state: state["processes"].append(vm))(line.mac)

    report = await converge.apply(line, steps())

    assert report.pending == (
        "LoginPending: m1 is not logged in, and loginwindow is not restarted while VMs run",
    )
    assert kicks(line) == 1
    changing(lambda state: state["processes"].clear())(line.mac)
    assert (await converge.apply(line, steps())).pending == ()
    assert session(line) == "m1"


@pytest.mark.parametrize("step", [AutoLogin("m1"), LocalNetwork("m1")], ids=lambda step: step.name)
async def test_a_vm_that_starts_after_the_look_keeps_running(step: Step, tmp_path: Path) -> None:
    """The agent is not stopped while steps work, so what was idle a moment ago need not be."""
    line = await a_mac(tmp_path, *steps(), change=reboot)
    mac, boot = line.mac, line.mac.state["boot"]["boot_id"]

    class Racing(ModelConnection):
        async def probe(self, probes: Collection[Probe]) -> Facts:
            facts = await super().probe(probes)
            changing(lambda state: state["processes"].append(VM))(mac)
            return facts

    with pytest.raises(TimedOut, match="no VM has started meanwhile"):
        await converge.apply(Racing(mac, clock=mac._clock), [step])

    assert kicks(line) == 1
    assert mac.state["boot"]["boot_id"] == boot


async def test_a_session_that_never_comes_is_an_error(tmp_path: Path) -> None:
    line = await a_mac(tmp_path, *steps()[:1], settings=Settings(login_seconds=3600))

    with pytest.raises(NotConverged, match="nobody was logged in"):
        await converge.apply(line, steps())


async def test_a_refused_restart_of_loginwindow_is_told_if_nobody_is_logged_in(
    tmp_path: Path,
) -> None:
    line = await a_mac(tmp_path, *steps()[:1])
    faults.protect(line.mac, launchd.LOGINWINDOW)

    with pytest.raises(NotConverged, match="nobody was logged in") as caught:
        await converge.apply(line, steps())

    assert 'Could not kickstart service "com.apple.loginwindow": 1: ' in str(caught.value)
    assert kicks(line) == 0


async def test_a_refused_restart_of_loginwindow_does_not_matter_where_somebody_is_logged_in(
    tmp_path: Path,
) -> None:
    """With a display a start alone logs the user in, and this one is under way."""
    settings = Settings(headless=False, login_seconds=20, boot_seconds=0)
    line = await a_mac(tmp_path, *steps(), settings=settings, change=Mac.reboot)
    faults.protect(line.mac, launchd.LOGINWINDOW)

    await converge.apply(line, steps())

    assert (session(line), kicks(line)) == ("m1", 1)


async def test_a_wrong_password_is_not_tried_again_after_a_cut(tmp_path: Path) -> None:
    """Cut while the answer was on its way: the second run is the second try, and the last."""
    line = await a_mac(tmp_path)
    line.faults.at(is_check, Cut(Moment.BEFORE))

    with pytest.raises(HostUnreachable):
        await converge.apply(line, steps("wrong"))
    with pytest.raises(UnsupportedHost):
        await converge.apply(line, steps("wrong"))

    assert line.mac.state["users"]["m1"]["wrong_count"] <= 2


async def test_a_user_who_is_not_the_macs_first_one_is_logged_in(tmp_path: Path) -> None:
    line = await a_mac(tmp_path, settings=Settings(uid=502))

    await converge.apply(line, steps())

    assert session(line) == "m1"
    assert not (await converge.apply(line, steps())).is_changed


@pytest.mark.parametrize(("headless", "kicked"), [(True, 2), (False, 1)])
async def test_a_fresh_mac_is_restarted_for_its_local_network_and_logged_in_again(
    headless: bool, kicked: int, tmp_path: Path
) -> None:
    """With a display the start does it, and a kick would end that session."""
    settings = Settings(headless=headless, login_seconds=0)
    line = await a_mac(tmp_path, *steps(), settings=settings)
    boot = line.mac.state["boot"]["boot_id"]

    report = await converge.apply(line, [LocalNetwork("m1")])

    assert line.mac.state["boot"]["boot_id"] != boot
    assert line.mac.state["local_network"]["active"]
    assert (session(line), kicks(line)) == ("m1", kicked)
    assert report.pending == ()


async def test_a_mac_with_vms_keeps_running_and_says_that_it_wants_a_restart(
    tmp_path: Path,
) -> None:
    line = await a_mac(tmp_path, *steps())
    changing(lambda state: state["processes"].append(VM))(line.mac)
    boot = line.mac.state["boot"]["boot_id"]

    report = await converge.apply(line, [LocalNetwork("m1")])

    assert line.mac.state["boot"]["boot_id"] == boot
    assert [told.partition(":")[0] for told in report.pending] == ["RebootPending"]
    assert not (await converge.apply(line, [LocalNetwork("m1")])).is_changed


async def test_no_command_and_no_error_shows_the_password(tmp_path: Path) -> None:
    line = await a_mac(tmp_path)
    with pytest.raises(UnsupportedHost) as caught:
        await converge.apply(line, steps("canary-password"))
    await converge.apply(line, steps())

    told = repr(line.done) + repr(caught.value) + repr(caught.value.__cause__)
    assert "canary-password" not in told
    assert PASSWORD not in told
    assert any(isinstance(command, Write) for command in line.done)
