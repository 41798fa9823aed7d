"""Guests of other programs, Linux guests and bakes under a lease are no leaks, and take only the slots that macOS counts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from bramley.agent.platform.system import GUEST_SERVICE
from bramley.agent.slots import EXIT_GRACE
from bramley.api.names import agent, events
from bramley.sim.mac.processes import Call, Process
from tests.unit.agent.pods.world import IMAGE, World, a_world

SERVICE = (
    "/System/Library/Frameworks/Virtualization.framework/Versions/A/XPCServices/"
    f"{GUEST_SERVICE}.xpc/Contents/MacOS/{GUEST_SERVICE}"
)
GRACE = EXIT_GRACE.total_seconds() + 1


async def forever(_: Process) -> int:
    await asyncio.get_running_loop().create_future()
    return 0


def ignore(_line: str) -> None:
    return


async def tart(world: World, *arguments: str) -> None:
    process = world.mac.start(Call(("tart", *arguments), ignore, ignore, {}), parent=1)
    assert await process.exit_code == 0


async def run_manually(world: World, vm: str, *options: str, parent: int = 1) -> Process:
    """Run a VM that the agent did not create."""
    run = Call(("tart", "run", *options, vm), ignore, ignore, {})
    process = world.mac.start(run, parent=parent)
    await asyncio.sleep(15)
    assert process.is_alive
    return process


async def docker(world: World) -> None:
    world.mac.table.spawn((SERVICE,), forever)


async def linux_guest(world: World) -> None:
    world.mac.settings.guest("ubuntu", work=100_000.0)
    await tart(world, "create", "--linux", "ubuntu")
    await run_manually(world, "ubuntu", "--dir", "work:/", "--no-graphics")


async def both(world: World) -> None:
    await docker(world)
    await linux_guest(world)
    await docker(world)


@pytest.mark.parametrize("other", [docker, linux_guest, both])
@pytest.mark.parametrize("restarts", [False, True], ids=["", "agent restarts"])
async def test_two_pods_run_beside_linux_guests(
    tmp_path: Path, other: object, *, restarts: bool
) -> None:
    async with a_world(tmp_path, starts=False, work=100_000.0) as world:
        await other(world)  # type: ignore[operator]
        world.start()
        for name in ("one", "two"):
            await world.pod(name)
        for name in ("one", "two"):
            await world.until_phase("Running", name=name, within=60)
        if restarts:
            await world.kill()
            world.start()
        await asyncio.sleep(GRACE)
        world.deps.slots.leaks()
        await asyncio.sleep(GRACE)

        assert not world.deps.slots.leaks()
        assert not world.deps.slots.others()
        assert not await world.event_messages(events.CREATE_FAILED)


async def test_program_that_starts_guests_later_is_no_leak(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        await world.pod("one")
        await world.until_phase("Running", name="one")
        await docker(world)
        await asyncio.sleep(GRACE)
        world.deps.slots.leaks()
        await asyncio.sleep(GRACE)
        await world.pod("two")
        await world.until_phase("Running", name="two", within=60)

        assert not world.deps.slots.leaks()


def hold(world: World, lease: Lease) -> int:
    return leases.acquire(world.mac.folders.leases, lease)


def bake_command(world: World) -> Process:
    """Start the command of a lease, and a child of it that runs the VM."""
    command = world.mac.table.spawn(("packer", "build"), forever)
    return world.mac.table.spawn(("packer-plugin-tart",), forever, parent=command.pid)


@pytest.mark.parametrize(
    "lease_of", ["its name", "everything", "its ancestor", "an ancestor that has ended"]
)
async def test_bake_under_a_lease_takes_a_slot_and_is_no_leak(
    tmp_path: Path, lease_of: str
) -> None:
    async with a_world(tmp_path, starts=False, work=100_000.0) as world:
        await tart(world, "clone", IMAGE, "bake")
        plugin = bake_command(world)
        command = plugin.parent
        names = {"its name": ("bake",), "everything": ()}.get(lease_of, ("base",))
        handle = hold(world, Lease(vms=names, pid=command))
        bake = await run_manually(world, "bake", "--disk", "/", parent=plugin.pid)
        if lease_of == "an ancestor that has ended":
            world.mac.table.kill(command)
        world.start()
        for name in ("one", "two"):
            await world.pod(name)
        running = await world.until_running_pod("one", "two")
        waiting = next(name for name in ("one", "two") if name != running)
        for _ in range(2):
            await asyncio.sleep(GRACE)
            taken = world.deps.slots.taken_by_others()
            assert (taken.leaks, taken.leased) == ((), ("bake",))
            await world.kill()
            world.start()
        (message, *_) = await world.event_messages(agent.AWAITING_SLOT)

        assert "bake (under a lease)" in message
        assert await world.phase(waiting) == "Pending"
        assert not await world.event_messages(events.CREATE_FAILED)
        world.mac.table.kill(bake.pid)
        os.close(handle)
        await world.until_phase("Running", name=waiting, within=60)


async def test_macos_vm_without_a_lease_is_reported_and_takes_one_slot(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=100_000.0) as world:
        await tart(world, "clone", IMAGE, "mine")
        await run_manually(world, "mine")
        handle = hold(world, Lease(vms=("other",), pid=bake_command(world).pid))
        world.start()
        await world.pod("one")
        await world.until_phase("Running", name="one")
        world.deps.slots.leaks()
        await asyncio.sleep(GRACE)
        leaks = world.deps.slots.leaks()
        os.close(handle)

        assert len(leaks) == 1
        assert "runs VM mine, which is not in the ledger and not under a lease" in leaks[0]


async def test_builder_that_advertises_one_slot_runs_a_pod_beside_its_bake(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path, starts=False, max_vms=1, work=100_000.0) as world:
        await tart(world, "clone", IMAGE, "bake")
        handle = hold(world, Lease(vms=("bake",)))
        await run_manually(world, "bake")
        world.start()
        await world.pod("one")
        await world.until_phase("Running", name="one", within=60)
        await world.pod("two")
        await asyncio.sleep(60)
        os.close(handle)

        assert await world.phase("two") == "Pending"
        assert not await world.event_messages(events.CREATE_FAILED)


async def test_refusal_because_of_a_bake_that_just_ended_is_no_leak(tmp_path: Path) -> None:
    """The bake is gone when the agent looks, but tart's message names it."""
    async with a_world(tmp_path, work=100_000.0) as world:
        await world.pod("one")
        await world.until_phase("Running", name="one")
        await tart(world, "clone", IMAGE, "bake")
        (own,) = world.deps.ledger.vms()
        slots = world.deps.slots

        slots.record_refusal("new", f"exceeds the system limit (other running VMs: {own}, bake)")
        assert not slots.leaks()
        slots.record_refusal("new", f"exceeds the system limit (other running VMs: {own})")
        assert len(slots.leaks()) == 1


async def test_refusal_while_a_lease_has_an_invisible_vm_blocks_without_a_leak(
    tmp_path: Path,
) -> None:
    """As with a bake that runs as another user, whose command line the agent cannot read."""
    async with a_world(tmp_path, work=100_000.0) as world:
        world.mac.settings.host(leaked_slots=1)
        handle = hold(world, Lease(vms=("bake",), pid=bake_command(world).pid))
        for name in ("one", "two"):
            await world.pod(name)
        running = await world.until_running_pod("one", "two")
        waiting = next(name for name in ("one", "two") if name != running)
        await asyncio.sleep(60)
        failures = len(await world.event_messages(events.CREATE_FAILED))
        taken = world.deps.slots.taken_by_others()
        assert (taken.leaks, taken.leased) == ((), ("an invisible VM",))
        assert await world.phase(waiting) == "Pending"
        world.mac.settings.host(leaked_slots=0)
        os.close(handle)
        await world.until_phase("Running", name=waiting, within=60)

        assert failures == 1
        assert not world.deps.slots.leaks()


async def test_leak_beside_a_visible_bake_is_reported(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=100_000.0) as world:
        await tart(world, "clone", IMAGE, "bake")
        handle = hold(world, Lease(vms=("bake",), pid=bake_command(world).pid))
        await run_manually(world, "bake")
        world.mac.settings.host(leaked_slots=1)
        world.start()
        await world.pod("one")
        await world.until(lambda: world.deps.slots.leaks())
        taken = world.deps.slots.taken_by_others()
        os.close(handle)

        assert (len(taken.leaks), taken.leased) == (1, ("bake",))
