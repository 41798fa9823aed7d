"""A VM whose guest gets no address in time: it is discarded with its disk, and its Pod gets a new one."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.agent.dhcp_leases import DhcpLeases
from bramley.api.core import Event, Pod
from bramley.api.names import agent, events
from tests.unit.agent.clocks import SetClock
from tests.unit.agent.pods.test_ends import end_of, watch_end
from tests.unit.agent.pods.world import IMAGE, NAMESPACE, World, a_world

TIMEOUT = 300.0
METRIC = "tart_kubelet_vm_boot_timeouts_total"


def lease_all(world: World, *, seconds: float) -> None:
    """Lease all addresses to VMs that are gone."""
    file = world.mac.folders.dhcp_leases
    until = hex(int(world.mac.clock.now().timestamp() + seconds))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "".join(
            f"{{\n\tname=guest\n\tip_address=192.168.64.{number}\n\thw_address=1,2:0:0:0:0:{number:x}\n"
            f"\tidentifier=1,2:0:0:0:0:{number:x}\n\tlease={until}\n}}\n"
            for number in range(2, 255)
        )
    )


async def until_booted(world: World, count: int) -> None:
    await world.until(lambda: world.boots == count, within=900)


async def warnings(world: World) -> list[Event]:
    listed = (await world.kube.list(Event, namespace=NAMESPACE)).items
    return [event for event in listed if event.reason == events.BOOT_TIMED_OUT]


async def until_abandoned(world: World) -> None:
    """Wait until a VM is given up; that state is short."""
    async with asyncio.timeout(1500):
        while not any(each.is_abandoned for each in world.deps.ledger.vms().values()):
            await asyncio.sleep(0.02)


async def test_vm_without_an_address_is_replaced_until_there_are_leases(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=30.0) as world:
        lease_all(world, seconds=900)
        world.start()
        world.deps.dhcp_leases = DhcpLeases(world.mac.folders.dhcp_leases, world.mac.clock)
        await world.pod()
        await until_abandoned(world)
        elapsed = asyncio.get_running_loop().time()
        pending = await world.get_pod()
        await world.until(lambda: world.boots == 2)
        pod = await world.until_phase("Succeeded", "Failed", within=1800)
        (warning, *_) = await warnings(world)
        count = world.agent.value(METRIC, pool="unknown")
        await world.until(world.nothing_left)

    assert TIMEOUT <= elapsed < TIMEOUT + 30
    assert pending.status.phase == "Pending"
    assert end_of(pod) == ("Succeeded", agent.RUN_EXITED, agent.COMPLETED, 0)
    assert warning.type == "Warning"
    assert "253 of 253 DHCP leases are in use" in warning.message
    assert 2 <= count <= 3
    assert world.boots == count + 1


async def test_phase_never_goes_back(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=30.0) as world:
        lease_all(world, seconds=900)
        world.start()
        await world.pod()
        phases: list[str] = []
        while not phases or phases[-1] not in {"Succeeded", "Failed"}:
            phases.append(await world.phase())
            await asyncio.sleep(0.5)

    order = ["", "Pending", "Running", "Succeeded"]
    assert [order.index(phase) for phase in phases] == sorted(map(order.index, phases))


async def test_guest_that_requests_no_address_is_named_as_the_cause(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=10_000.0, has_address=False) as world:
        world.start()
        world.deps.dhcp_leases = DhcpLeases(world.mac.folders.dhcp_leases, world.mac.clock)
        await world.pod()
        await until_abandoned(world)
        await asyncio.sleep(5)
        (warning,) = await warnings(world)

    assert "0 of 253 DHCP leases are in use" in warning.message
    assert "did not boot or did not request one" in warning.message


async def test_slot_is_free_for_another_pod(tmp_path: Path) -> None:
    async with a_world(tmp_path, max_vms=1, work=10_000.0) as world:
        silent = "registry.example/silent@sha256:" + "b" * 64
        world.mac.settings.image(
            silent, size_bytes=2_000_000_000, guest={"has_address": False, "work": 10_000.0}
        )
        await world.pod("silent", image=silent)
        await world.until(lambda: world.boots == 1)
        await world.pod("other", image=IMAGE)
        await world.until_phase("Running", name="other", within=TIMEOUT + 120)
        assert await world.phase("silent") == "Pending"


@pytest.mark.parametrize("down", [0.0, 1000.0])
async def test_deadline_counts_from_the_start_also_for_the_next_agent(
    tmp_path: Path, down: float
) -> None:
    async with a_world(tmp_path, work=10_000.0, has_address=False) as world:
        await world.pod()
        await world.until(lambda: world.boots == 1)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(200)
        await world.kill()
        await asyncio.sleep(down)
        world.start()
        await until_abandoned(world)
        elapsed = asyncio.get_running_loop().time() - began

    expected = max(TIMEOUT, 200 + down)
    assert expected - 5 <= elapsed < expected + 15


@pytest.mark.parametrize("jump", [timedelta(hours=5), -timedelta(hours=5)])
async def test_jump_of_the_clock_does_not_shorten_the_deadline(
    tmp_path: Path, jump: timedelta
) -> None:
    async with a_world(tmp_path, starts=False, work=10_000.0, has_address=False) as world:
        world.mac.clock = clock = SetClock(world.mac.clock)
        world.start()
        await world.pod()
        await world.until(lambda: world.boots == 1)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(100)
        clock.jump(jump)
        await asyncio.sleep(5)
        await world.kill()
        world.start()
        await until_abandoned(world)
        elapsed = asyncio.get_running_loop().time() - began

    assert TIMEOUT - 5 <= elapsed < TIMEOUT + 15


async def test_vm_whose_address_cannot_be_looked_up_is_kept(tmp_path: Path) -> None:
    """It may have an address and run its job: only a look-up that succeeds shows that it has none."""
    async with a_world(tmp_path, work=1000.0, code=3) as world:
        world.mac.faults.add("tart ip", "fail", code=1, stderr="Error: unknown")
        await world.pod()
        pod = await world.until_phase("Succeeded", "Failed", within=2000)
        (warning,) = await warnings(world)

    assert world.boots == 1
    assert end_of(pod)[3] == 3
    assert warning.count == 1
    assert "is unknown after 300 s, and it is kept" in warning.message
    assert "Error: unknown" in warning.message


@pytest.mark.parametrize("knows", ["server", "ledger"])
async def test_vm_that_had_an_address_is_kept_without_one(tmp_path: Path, knows: str) -> None:
    async with a_world(tmp_path, work=1000.0, code=3) as world:
        await world.pod()
        await world.until_phase("Running")
        if knows == "server":
            # As written by an agent that did not record it.
            (record,) = world.deps.ledger.vms().values()
            world.deps.ledger.put(msgspec.structs.replace(record, had_address=False))
        await world.kill()
        if knows == "ledger":
            # As if the status was lost before the server stored it.
            pod = await world.get_pod()
            lost = {"phase": "Pending", "podIP": None, "podIPs": None}
            await world.kube.merge_patch(
                Pod, pod.name, {"status": lost}, namespace=NAMESPACE, subresource="status"
            )
        no_address = "no IP address found, is your VM running?"
        world.mac.faults.add("tart ip", "fail", code=1, stderr=no_address)
        await asyncio.sleep(400)
        world.start()
        pod = await world.until_phase("Succeeded", "Failed", within=2000)
        assert not await warnings(world)

    assert world.boots == 1
    assert end_of(pod)[3] == 3


async def test_report_of_a_guest_without_an_address_counts(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100.0, code=3, has_address=False) as world:
        await world.pod()
        pod = await world.until_phase("Succeeded", "Failed")

    assert world.boots == 1
    assert end_of(pod)[3] == 3


async def test_report_that_arrives_while_the_vm_is_given_up_counts(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=270.0, code=3, has_address=False) as world:
        world.mac.faults.add("tart stop", "slow", seconds=8.0)
        await world.pod()
        pod = await world.until_phase("Succeeded", "Failed", within=2000)

    assert end_of(pod)[3] == 3
    assert world.boots == 1


@pytest.mark.parametrize("moment", ["marked", "stopped"])
async def test_agent_killed_while_it_gives_up_a_vm_is_continued(
    tmp_path: Path, moment: str
) -> None:
    async with a_world(tmp_path, starts=False, work=30.0) as world:
        lease_all(world, seconds=400)
        world.start()
        await world.pod()
        await until_abandoned(world)
        if moment == "stopped":
            await world.until(lambda: not world.running())
        await world.kill()
        await asyncio.sleep(100)
        world.start()
        pod = await world.until_phase("Succeeded", "Failed", within=2000)

    assert end_of(pod) == ("Succeeded", agent.RUN_EXITED, agent.COMPLETED, 0)


async def test_given_up_vm_that_got_an_address_before_the_next_agent_is_kept(
    tmp_path: Path,
) -> None:
    """Its guest may run a job by then, which must neither be ended nor begin again."""
    async with a_world(tmp_path, starts=False, work=1000.0, code=3) as world:
        lease_all(world, seconds=320)
        world.mac.faults.add("tart stop", "hang")
        world.start()
        await world.pod()
        await until_abandoned(world)
        await world.kill()
        await asyncio.sleep(200)
        world.start()
        await world.until_phase("Running", within=30)
        pod = await world.until_phase("Succeeded", "Failed", within=2000)
        await world.until(world.nothing_left)

    assert world.boots == 1
    assert end_of(pod)[3] == 3


async def test_pod_deleted_while_its_vm_is_given_up_is_gone(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=10_000.0, has_address=False, ignores_shutdown=True) as world:
        world.mac.faults.add("tart stop", "slow", seconds=15.0)
        await world.pod(termination_grace_period_seconds=10)
        await until_abandoned(world)
        await world.delete()
        await world.until_gone(within=60)
        await world.until(world.nothing_left)
        assert world.boots == 1


async def test_pod_deleted_before_its_given_up_vm_is_stopped_has_an_exit(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=10_000.0, has_address=False, ignores_shutdown=True) as world:
        await world.pod(termination_grace_period_seconds=10)
        await until_abandoned(world)
        await world.kill()
        await world.delete()
        world.start()
        pod = await watch_end(world)
        await world.until_gone(within=60)
        await world.until(world.nothing_left)

    assert end_of(pod) == ("Failed", agent.STOPPED, agent.STOPPED, 137)


async def test_active_deadline_ends_a_pod_whose_vms_never_have_an_address(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=10_000.0, has_address=False) as world:
        await world.pod(active_deadline_seconds=500, termination_grace_period_seconds=5)
        pod = await world.until_phase("Succeeded", "Failed", within=700)

    assert (pod.status.phase, pod.status.reason) == ("Failed", agent.DEADLINE_EXCEEDED)


async def test_adopted_vm_without_an_address_is_kept_and_named_once(tmp_path: Path) -> None:
    """A job may have run in it: neither its disk nor its Pod begins again."""
    async with a_world(tmp_path, work=10_000.0, has_address=False) as world:
        await world.pod()
        await world.until(lambda: world.boots == 1)
        await world.kill()
        for record in (world.mac.folders.ledger / "vms").iterdir():
            record.write_text("damaged")
        world.start()
        await asyncio.sleep(2 * TIMEOUT)
        (warning,) = await warnings(world)

    assert (world.boots, warning.count) == (1, 1)
    assert "is kept: delete the Pod" in warning.message


async def test_each_attempt_has_a_new_disk_and_a_new_mac(tmp_path: Path) -> None:
    seen: set[tuple[str, int]] = set()
    async with a_world(tmp_path, work=10_000.0, has_address=False) as world:
        await world.pod()
        for attempt in (1, 2):
            await until_booted(world, attempt)
            (vm,) = world.running()
            bundle = world.mac.folders.tart_home / "vms" / vm
            seen.add((world.mac.tart.guests[vm].plan.mac, bundle.stat().st_ino))
            await asyncio.sleep(5)

    assert len({mac for mac, _ in seen}) == 2
