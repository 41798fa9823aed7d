"""Many VMs on one Mac: each takes a DHCP lease that outlives it, and there are 253 of them."""

from __future__ import annotations

import asyncio
import plistlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.dhcp_leases import POOL_SIZE, DhcpLeases
from bramley.api import conditions
from bramley.api.core import Event, Node
from bramley.api.names import conditions as types
from bramley.api.names import events, host
from bramley.host import converge
from bramley.host.steps.dhcp_leases import DhcpLeases as LeaseTimeStep
from bramley.sim.tart.settings import HOST
from tests.scenarios.agent_life.world import IMAGE, NODE, TAGGED, World, a_world, is_ready
from tests.unit.host.steps import fixtures

# What macOS uses until the bootstrap has shortened it.
DAY: int = HOST["lease_seconds"]
VMS = 600
AT_ONCE = 2
TIMINGS = {"address": 2.0, "agent": 2.5, "ready": 3.0, "halt": 0.5, "start": 0.3}
SOON = timedelta(minutes=2)
PODS = ("one", "two", "three")


@asynccontextmanager
async def a_busy_mac(folder: Path, *, lease_seconds: int) -> AsyncIterator[World]:
    async with a_world(folder) as world:
        world.mac.settings.host(lease_seconds=lease_seconds)
        world.mac.settings.timings(**TIMINGS)
        world.mac.settings.image(TAGGED, size_bytes=250_000_000, guest={"work": 1.0, "code": 0})
        world.start()
        await world.until(lambda: is_ready(world.kube), within=SOON, what="Ready")
        yield world


async def run_one(world: World, name: str) -> str:
    """Run a Pod to its end, delete it, and return the address that it had."""
    await world.pod(name, image=IMAGE)
    address = ""

    async def has_ended() -> bool:
        nonlocal address
        pod = await world.find(name)
        assert pod is not None
        address = pod.status.pod_ip or address
        return pod.status.phase == "Succeeded"

    await world.until(has_ended, within=timedelta(minutes=2), what=f"the end of {name}")
    await world.delete(name)
    return address


async def run_in_a_row(world: World, count: int) -> list[str]:
    """Run Pods, as many at once as the Mac can, and return their addresses."""
    names = [f"job-{number}" for number in range(count)]
    addresses: list[str] = []

    async def run_some() -> None:
        while names:
            addresses.append(await run_one(world, names.pop()))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(run_some())
    return addresses


async def bootstrapped_lease_time(folder: Path) -> int:
    """Return the lease time that the bootstrap sets on a Mac."""
    connection = await fixtures.mac(folder)
    await converge.apply(connection, [LeaseTimeStep()])
    preferences = plistlib.loads(connection.mac.files.read(host.SHARING_PREFERENCES) or b"")
    return int(preferences[host.SHARING_DHCP][host.SHARING_LEASE_SECONDS])


async def pressure(world: World) -> tuple[str, str]:
    """Return status and message of the Node's condition."""
    node = await world.kube.get(Node, NODE)
    found = conditions.find(node.status.conditions, types.DHCP_PRESSURE)
    return (found.status, found.message) if found else ("", "")


async def until_pressure(world: World, status: str, within: timedelta = SOON) -> None:
    async def is_reached() -> bool:
        return (await pressure(world))[0] == status

    await world.until(is_reached, within=within, what=f"{types.DHCP_PRESSURE} is {status}")


async def warnings(world: World) -> list[Event]:
    listed = (await world.kube.list(Event)).items
    return [event for event in listed if event.reason == events.BOOT_TIMED_OUT]


@pytest.mark.long
async def test_600_vms_in_a_row_have_an_address_with_the_lease_time_of_the_bootstrap(
    tmp_path: Path,
) -> None:
    lease_seconds = await bootstrapped_lease_time(tmp_path / "bootstrap")
    async with a_busy_mac(tmp_path / "agent", lease_seconds=lease_seconds) as world:
        addresses = await run_in_a_row(world, VMS)
        usage = DhcpLeases(world.mac.folders.dhcp_leases, world.clock).usage()

        assert len(addresses) == VMS
        assert all(addresses)
        assert len(world.mac.tart.started_vms) == VMS
        assert await warnings(world) == []
        # Those of the last ten minutes.
        assert 0 < usage.used < POOL_SIZE
        assert (await pressure(world))[0] == "False"


async def until_succeeded(world: World, name: str) -> None:
    async def has_succeeded() -> bool:
        pod = await world.find(name)
        return pod is not None and pod.status.phase == "Succeeded"

    await world.until(has_succeeded, within=timedelta(minutes=20), what=f"the end of {name}")


async def until_warned(world: World, count: int) -> None:
    async def is_warned() -> bool:
        return sum(event.count for event in await warnings(world)) >= count

    await world.until(is_warned, within=timedelta(minutes=15), what=f"{count} warnings")


@pytest.mark.long
async def test_vm_without_a_lease_is_replaced_until_leases_of_a_day_expire(tmp_path: Path) -> None:
    async with a_busy_mac(tmp_path, lease_seconds=DAY) as world:
        began = world.clock.monotonic()
        addresses = await run_in_a_row(world, POOL_SIZE)
        assert all(addresses)
        await until_pressure(world, "True")
        await asyncio.sleep(SOON.total_seconds())
        assert f"{POOL_SIZE} of {POOL_SIZE}" in (await pressure(world))[1]

        # From here on no VM gets an address; before, its Pod stayed Pending without an event, and kept its slot.
        for name in PODS:
            await world.pod(name, image=IMAGE)
        await until_warned(world, 3)
        warned = {event.involved_object.name for event in await warnings(world)}
        assert warned == set(PODS), "each had its turn, so slots are freed"
        assert f"{POOL_SIZE} of {POOL_SIZE} DHCP leases" in (await warnings(world))[0].message
        for name in warned:
            pod = await world.find(name)
            assert pod is not None
            assert pod.status.phase == "Pending"

        # The rest of the day is cut short: each lease loses the same time.
        shorten_leases(world, DAY - (world.clock.monotonic() - began) - 60)
        for name in PODS:
            await until_succeeded(world, name)
        await until_pressure(world, "False")


def shorten_leases(world: World, seconds: float) -> None:
    """Let all leases expire earlier by so many seconds."""
    file = world.mac.folders.dhcp_leases
    lines = [
        f"\tlease={hex(int(line.partition('=')[2], 16) - int(seconds))}"
        if line.startswith("\tlease=")
        else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(lines) + "\n")
