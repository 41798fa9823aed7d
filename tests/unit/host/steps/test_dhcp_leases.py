"""Leases of VMs are short, and everything else in the preferences of the DHCP server stays."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

import pytest

from bramley.api.names import host
from bramley.base.secret import Secret
from bramley.host import converge, drift, removal
from bramley.host.drift import Part
from bramley.host.step import Step
from bramley.host.steps.dhcp_leases import DhcpLeases
from bramley.host.steps.sudo import Sudo
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps import cases, fixtures
from tests.unit.host.steps.cases import Case
from tests.unit.host.steps.interruption import PASSWORD, MacTemplate, interrupt_everywhere

STEP = DhcpLeases()
FOREIGN: dict[str, Any] = {"NAT": {"Enabled": 1}, "bootpd": {"Other": "x"}}


@pytest.mark.parametrize("case", cases.load("dhcp_leases"), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)


def preferences(mac: Mac) -> Any:
    return plistlib.loads(mac.files.read(host.SHARING_PREFERENCES) or b"")


def write_foreign(mac: Mac) -> None:
    mac.files.write(host.SHARING_PREFERENCES, plistlib.dumps(FOREIGN))


def removals() -> list[Step]:
    return [step for step in removal.steps("m1") if step.name == STEP.name]


async def test_lease_time_is_set_once_and_stamped(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)

    await converge.apply(connection, [STEP])

    assert preferences(connection.mac) == {"bootpd": {"DHCPLeaseTimeSecs": 600}}
    assert (await converge.plan(connection, [STEP])).is_empty
    stamps = drift.load(connection.mac.files.read(host.STAMPS) or b"")
    assert stamps == {Part.DHCP_LEASES: STEP.desired().stamp}


async def test_foreign_settings_stay_when_it_is_set_and_when_it_is_removed(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    write_foreign(connection.mac)

    await converge.apply(connection, [STEP])
    applied = preferences(connection.mac)
    await converge.apply(connection, removals())

    assert applied == {**FOREIGN, "bootpd": {"Other": "x", "DHCPLeaseTimeSecs": 600}}
    assert preferences(connection.mac) == FOREIGN
    assert (await converge.plan(connection, removals())).is_empty


async def test_removal_restores_the_lease_time_of_macos(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, STEP)

    await converge.apply(connection, removals())

    assert preferences(connection.mac) == {}


@pytest.mark.parametrize("step", [STEP, DhcpLeases(300)])
async def test_removal_keeps_another_lease_time(step: Step, tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, step)
    content = plistlib.dumps({"bootpd": {"DHCPLeaseTimeSecs": 3600}})
    connection.mac.files.write(host.SHARING_PREFERENCES, content)

    await converge.apply(connection, removals())

    assert preferences(connection.mac) == {"bootpd": {"DHCPLeaseTimeSecs": 3600}}


async def test_changed_lease_time_is_set_stamped_and_removed(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, STEP)
    step = DhcpLeases(300)

    await converge.apply(connection, [step])
    applied = preferences(connection.mac)
    stamps = drift.load(connection.mac.files.read(host.STAMPS) or b"")
    await converge.apply(connection, removals())

    assert applied == {"bootpd": {"DHCPLeaseTimeSecs": 300}}
    assert stamps == {Part.DHCP_LEASES: step.desired().stamp}
    assert step.desired().stamp != STEP.desired().stamp
    assert preferences(connection.mac) == {}


async def test_lease_time_without_a_stamp_is_restored_only_if_it_is_the_default(
    tmp_path: Path,
) -> None:
    connection = await fixtures.mac(tmp_path)
    left = []
    for seconds in (300, 600):
        content = plistlib.dumps({"bootpd": {"DHCPLeaseTimeSecs": seconds}})
        connection.mac.files.write(host.SHARING_PREFERENCES, content)
        await converge.apply(connection, removals())
        left.append(preferences(connection.mac))

    assert left == [{"bootpd": {"DHCPLeaseTimeSecs": 300}}, {}]


async def test_lease_time_that_was_reset_is_found_and_set_again(tmp_path: Path) -> None:
    """An update of macOS may replace the file; the stamp alone would not show that."""
    connection = await fixtures.mac(tmp_path, STEP)
    connection.mac.files.remove(host.SHARING_PREFERENCES)

    report = await converge.apply(connection, [STEP])

    assert report.changed == {STEP.name: 1}
    assert preferences(connection.mac)["bootpd"]["DHCPLeaseTimeSecs"] == 600


@pytest.mark.parametrize("damage", [plistlib.dumps({"bootpd": "x", "NAT": {}}), plistlib.dumps([]), b"x", b"<plist>x</plist>"])  # fmt: skip
async def test_unusable_preferences_are_replaced(damage: bytes, tmp_path: Path) -> None:
    """`defaults` refuses to add an entry to a value that is no dictionary."""
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.write(host.SHARING_PREFERENCES, damage)

    await converge.apply(connection, [STEP])

    assert preferences(connection.mac)["bootpd"] == {"DHCPLeaseTimeSecs": 600}
    assert (await converge.plan(connection, [STEP])).is_empty


async def test_interrupted_step_converges(tmp_path: Path) -> None:
    sudo = Sudo("m1", Secret(PASSWORD))
    template = await MacTemplate.make(tmp_path, sudo, change=write_foreign)

    await interrupt_everywhere(template, [STEP])


async def test_interrupted_removal_converges(tmp_path: Path) -> None:
    template = await MacTemplate.make(tmp_path, Sudo("m1", Secret(PASSWORD)), DhcpLeases(300))

    await interrupt_everywhere(template, removals())
