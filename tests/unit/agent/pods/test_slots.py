"""At most two VMs, including foreign ones; a slot that is taken without a reason is reported as leaked."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.slots import EXIT_GRACE, FORGET_REFUSAL_AFTER, RETRY_AFTER_REFUSAL
from bramley.api.names import agent, events
from bramley.api.pod import Container, EnvFromSource, EnvSource
from bramley.sim.mac.processes import Call
from tests.unit.agent.pods.world import IMAGE, World, a_world


async def test_third_pod_waits_for_a_slot_with_a_reason(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        for name in ("one", "two", "three"):
            await world.pod(name)
        await world.until(lambda: len(world.running()) == 2)
        await asyncio.sleep(60)
        phases = {name: await world.phase(name) for name in ("one", "two", "three")}
        waiting = next(name for name, phase in phases.items() if phase == "Pending")
        state = (await world.get_pod(waiting)).status.container_statuses[0].state
        loser = next(name for name, phase in phases.items() if phase == "Running")
        await world.delete(loser)
        await world.until_phase("Running", name=waiting, within=60)

    assert sorted(phases.values()) == ["Pending", "Running", "Running"]
    assert state.waiting is not None
    assert state.waiting.reason == agent.AWAITING_SLOT
    assert max(world.guest_counts) == 2


async def test_advertised_slots_bind_below_the_systems_limit(tmp_path: Path) -> None:
    async with a_world(tmp_path, max_vms=1, work=20.0) as world:
        await world.pod("one")
        await world.pod("two")
        for name in ("one", "two"):
            await world.until_phase("Succeeded", name=name)

    assert world.boots == 2
    assert max(world.guest_counts) == 1


NO_IMAGE = Container(name="runner", image="-x")
NO_SECRET = Container(
    name="runner", image=IMAGE, env_from=[EnvFromSource(secret_ref=EnvSource(name="none"))]
)


@pytest.mark.parametrize("lacks", [NO_IMAGE, NO_SECRET], ids=["image", "secret"])
async def test_pods_that_can_get_no_vm_take_no_slots(tmp_path: Path, lacks: Container) -> None:
    async with a_world(tmp_path, work=20.0) as world:
        for name in ("bad", "worse"):
            await world.pod(name, containers=[lacks])
        await world.until(lambda: len(world.deps.states.failing_uids()) == 2)
        for name in ("one", "two"):
            await world.pod(name)
        for name in ("one", "two"):
            await world.until_phase("Succeeded", name=name, within=120)
        phases = [await world.phase(name) for name in ("bad", "worse")]

    assert phases == ["Pending", "Pending"]
    assert max(world.guest_counts) == 2


async def test_waiting_pod_names_the_vms_that_are_being_created(world: World) -> None:
    world.mac.faults.add("tart pull", "hang")
    for name in ("one", "two"):
        await world.pod(name)
    await world.until(lambda: len(world.deps.ledger.vms()) == 2)
    await world.pod("three")
    await asyncio.sleep(5)
    (message,) = await world.event_messages(agent.AWAITING_SLOT)

    assert all(vm in message for vm in world.deps.ledger.vms())


async def test_claim_of_a_pod_that_is_gone_takes_no_slot(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=20.0) as world:
        world.mac.faults.add("tart pull", "hang")
        for name in ("one", "two"):
            await world.pod(name)
        await world.until(lambda: len(world.deps.ledger.vms()) == 2)
        await world.kill()
        for name in ("one", "two"):
            await world.delete(name, grace=timedelta())
            await world.free(name)
        world.mac.faults.clear()
        world.start()
        await world.pod("three")
        # A clone of a killed agent may finish within five minutes, and is owned for that long.
        await world.until_phase("Succeeded", name="three", within=150)


async def test_stopping_vm_still_takes_its_slot(tmp_path: Path) -> None:
    async with a_world(tmp_path, max_vms=1, work=1000.0, ignores_shutdown=True) as world:
        await world.pod("old", termination_grace_period_seconds=30)
        await world.until_phase("Running", name="old")
        await world.delete("old")
        await world.pod("new")
        await asyncio.sleep(25)
        still = await world.phase("new")
        await world.until_phase("Running", name="new", within=60)

    assert still == "Pending"
    assert max(world.guest_counts) == 1


async def leak(world: World) -> None:
    """Keep a VM's guest running without its tart, its Pod and its records."""
    world.mac.faults.add("tart run", "outlives")
    await world.pod("leaky", termination_grace_period_seconds=0)
    await world.until_phase("Running", name="leaky")
    world.mac.faults.clear()
    (supervised,) = world.mac.supervised.values()
    assert supervised.tart is not None
    world.mac.table.kill(supervised.tart.pid)
    await world.until_phase("Failed", name="leaky")
    await world.delete("leaky")
    await world.until_gone("leaky")


async def refused(world: World) -> None:
    """Run a VM beside the leaked guest, and wait until macOS has refused another one."""
    await leak(world)
    await asyncio.sleep(EXIT_GRACE.total_seconds() + 1)
    for name in ("one", "two"):
        await world.pod(name)
    await world.until(lambda: world.deps.slots.leaks())


async def test_guest_that_outlives_its_tart_is_a_leak_once_macos_refuses_a_start(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        await refused(world)
        leaks = world.deps.slots.leaks()
        (service,) = (each.pid for each in world.agent.side.host.guest_processes()[:1])
        await asyncio.sleep(RETRY_AFTER_REFUSAL.total_seconds() / 2)

        assert len(await world.event_messages(events.CREATE_FAILED)) == 1
        assert len(leaks) == 1
        assert f"without a tart: {service}" in leaks[0]
        assert sorted([await world.phase("one"), await world.phase("two")]) == [
            "Pending",
            "Running",
        ]
        assert max(world.guest_counts) == 2


async def test_leak_is_known_to_the_next_agent_without_another_refusal(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        await refused(world)
        boots, clones = world.boots, len(await world.event_messages(events.CLONED_VM))
        await world.kill()
        world.start()
        await asyncio.sleep(RETRY_AFTER_REFUSAL.total_seconds() / 2)

        assert len(world.deps.slots.leaks()) == 1
        assert (world.boots, len(await world.event_messages(events.CLONED_VM))) == (boots, clones)


async def test_reboot_ends_the_leak(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        await refused(world)
        await world.kill()
        world.mac.reboot()
        world.start()

        assert not world.deps.slots.leaks()
        await world.until(lambda: len(world.running()) == 1)


async def test_slot_is_used_as_soon_as_the_leaked_guest_ends(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        await refused(world)
        world.mac.table.kill(world.agent.side.host.guest_processes()[0].pid)
        for name in ("one", "two"):
            await world.until_phase("Running", name=name, within=60)

        assert not world.deps.slots.leaks()


async def test_start_in_the_other_slot_does_not_disprove_a_leak(tmp_path: Path) -> None:
    """Otherwise every VM on a busy Mac would be followed by a start that macOS refuses."""
    async with a_world(tmp_path, work=100_000.0) as world:
        await refused(world)
        running = await world.until_running_pod("one", "two")
        failures = len(await world.event_messages(events.CREATE_FAILED))
        await world.delete(running)
        other = next(name for name in ("one", "two") if name != running)
        await world.until_phase("Running", name=other, within=60)
        await world.pod("three")
        await asyncio.sleep(60)

        assert len(world.deps.slots.leaks()) == 1
        assert await world.phase("three") == "Pending"
        assert len(await world.event_messages(events.CREATE_FAILED)) == failures


async def test_refusal_without_a_process_is_forgotten_so_that_it_is_tried_again(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        world.mac.settings.host(leaked_slots=1)
        for name in ("one", "two"):
            await world.pod(name)
        await world.until(lambda: world.deps.slots.leaks())
        running = await world.until_running_pod("one", "two")
        await world.delete(next(name for name in ("one", "two") if name != running))
        await asyncio.sleep(FORGET_REFUSAL_AFTER.total_seconds())

        assert not world.deps.slots.leaks()


async def test_guest_that_ends_shortly_after_its_tart_is_no_leak(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        await leak(world)

        assert not world.deps.slots.leaks()
        assert "a VM that is ending" in world.deps.slots.others()


async def test_slot_of_a_guest_that_is_ending_is_not_used_yet(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100_000.0) as world:
        await leak(world)
        (ending,) = world.agent.side.host.guest_processes()
        for name in ("one", "two"):
            await world.pod(name)
        await asyncio.sleep(EXIT_GRACE.total_seconds() / 2)
        world.mac.table.kill(ending.pid)
        for name in ("one", "two"):
            await world.until_phase("Running", name=name, within=60)

        assert not await world.event_messages(events.CREATE_FAILED)


async def test_unexplained_refusal_is_a_leak(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        world.mac.settings.host(leaked_slots=2)
        await world.pod()
        await world.until(lambda: world.deps.slots.leaks())
        leaks = list(world.deps.slots.leaks())
        pending = await world.phase()
        messages = await world.event_messages(events.CREATE_FAILED)
        await asyncio.sleep(RETRY_AFTER_REFUSAL.total_seconds() / 2)
        tries = len(await world.event_messages(events.CLONED_VM))
        world.mac.settings.host(leaked_slots=0)
        await world.until_phase("Running")

        assert len(leaks) == 2
        assert "refused" in leaks[0]
        assert pending == "Pending"
        assert any("exceeds the system limit" in message for message in messages)
        assert tries == 1
        assert not world.deps.slots.leaks()
        assert world.boots == 1


async def run_manually(world: World, vm: str) -> None:
    """Run a foreign VM."""
    for argv in (("tart", "pull", IMAGE), ("tart", "clone", IMAGE, vm)):
        assert await world.mac.start(Call(argv, ignore, ignore, {}), parent=1).exit_code == 0
    world.mac.start(Call(("tart", "run", vm), ignore, ignore, {}), parent=1)
    await asyncio.sleep(15)


def ignore(_line: str) -> None:
    return


async def test_foreign_vm_takes_a_slot_and_is_left_alone(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=1000.0) as world:
        await run_manually(world, "bake")
        world.start()
        await world.pod("one")
        await world.pod("two")
        await world.until(lambda: len(world.running()) == 2)
        await asyncio.sleep(timedelta(minutes=10).total_seconds())

        assert not await world.event_messages(events.CREATE_FAILED)
        assert "bake" in world.running()
        assert max(world.guest_counts) == 2


async def test_slot_is_checked_again_before_a_clone_starts(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        world.mac.session.end()
        world.mac.session.logs_in = False
        await world.pod("one")
        await world.pod("two")
        await world.until(lambda: len(world.vms()) == 2)
        world.mac.session.logs_in = True
        world.mac.session.log_in()
        world.agent.side.kill()
        await run_manually(world, "bake")
        await world.kill()
        world.start()
        await world.until(lambda: len(world.running()) == 2)
        await asyncio.sleep(60)
        messages = await world.event_messages(events.CREATE_FAILED)

    assert not any("limit" in message for message in messages)
