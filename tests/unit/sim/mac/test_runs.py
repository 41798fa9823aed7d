from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from bramley.base import errors
from tests.unit.sim.mac.worlds import a_mac, now


async def test_a_run_ends_with_its_guest_and_says_when(tmp_path: Path) -> None:
    async with a_mac(tmp_path, work=5) as world:
        vm = await world.running_vm()
        assert world.side.runs.ended(vm) is None

        ended = await world.side.runs.wait(vm)

        assert ended.code == 0
        assert ended.at == world.mac.clock.now()
        assert world.side.runs.ended(vm) == ended
        assert world.side.runs.output_tail(vm) == "guest has stopped the virtual machine"
        log = world.mac.folders.vm_logs / "vm.log"
        assert log.read_text() == "guest has stopped the virtual machine\n"


async def test_a_name_is_run_once_until_it_is_forgotten(tmp_path: Path) -> None:
    async with a_mac(tmp_path, work=1) as world:
        vm = await world.running_vm()
        with pytest.raises(errors.AlreadyExists):
            await world.start(vm)
        await world.side.runs.wait(vm)
        with pytest.raises(errors.AlreadyExists):
            await world.start(vm)

        world.side.runs.forget(vm)

        assert not world.side.runs.exists(vm)
        await world.start(vm)


async def test_a_later_agent_sees_how_the_run_of_a_dead_one_ended(tmp_path: Path) -> None:
    async with a_mac(tmp_path, work=30) as world:
        vm = await world.running_vm()
        world.side.kill()
        await asyncio.sleep(100)
        world.next_agent()

        ended = world.side.runs.ended(vm)

        assert ended is not None
        assert ended.code == 0
        assert await world.side.runs.wait(vm) == ended


async def test_a_killed_tart_takes_its_guest_along(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        vm = await world.running_vm()
        assert world.side.host.lock_holder(world.config(vm)) is not None
        assert len(world.side.host.guest_processes()) == 2

        world.side.runs.kill(vm)

        assert world.side.host.lock_holder(world.config(vm)) is None
        assert world.side.host.guest_processes() == []
        assert (await world.side.runs.wait(vm)).code == -signal.SIGKILL


async def test_a_leaked_guest_outlives_its_tart_until_the_host_reboots(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.faults.add("tart run", "outlives", times=1)
        vm = await world.running_vm()
        world.side.runs.kill(vm)
        await world.side.runs.wait(vm)

        assert len(world.side.host.guest_processes()) == 1
        for other in ("a", "b"):
            await world.start(await world.vm(other))
        ended = await world.side.runs.wait("b")
        assert ended.code == 1
        assert "exceeds the system limit" in world.side.runs.output_tail("b")

        world.mac.reboot()

        assert world.side.host.guest_processes() == []


async def test_a_reboot_ends_everything_without_a_word(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        vm = await world.running_vm()
        before = world.side.host.boot_id()
        world.side.kill()

        world.mac.reboot()

        world.next_agent()
        assert world.side.host.boot_id() != before
        assert world.mac.table.living() == []
        assert world.config(vm).exists()
        assert world.side.host.lock_holder(world.config(vm)) is None
        ended = await world.side.runs.wait(vm)
        assert (ended.code, ended.at) == (None, None)


async def test_a_lost_supervisor_leaves_a_run_that_lives_and_ends_without_a_code(
    tmp_path: Path,
) -> None:
    async with a_mac(tmp_path, work=10) as world:
        vm = await world.running_vm()
        supervisor = world.mac.supervised[vm].supervisor
        assert supervisor is not None

        world.mac.table.kill(supervisor.pid)

        assert world.side.runs.is_alive(vm)
        assert (await world.side.runs.wait(vm)).code is None


async def test_stopping_a_vm_ends_its_run_in_peace(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        vm = await world.running_vm()

        assert (await world.tart("stop", vm)).code == 0

        assert world.side.runs.output_tail(vm) == "Stopping VM..."
        assert (await world.side.runs.wait(vm)).code == 0


async def test_a_stuck_tart_is_killed_by_stop(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.faults.add("tart run", "ignores_stop")
        vm = await world.running_vm()
        began = now()

        assert (await world.tart("stop", vm, "--timeout", "30")).code == 0

        assert now() - began >= 30
        assert (await world.side.runs.wait(vm)).code == -signal.SIGKILL


async def test_a_guest_asked_to_shut_down_ends_its_run(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        vm = await world.running_vm()
        await asyncio.sleep(5)

        assert (await world.tart("exec", vm, "sudo", "shutdown", "-h", "now")).code == 0

        assert (await world.side.runs.wait(vm)).code == 0


async def test_waiting_for_a_run_that_never_began_is_an_error(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        with pytest.raises(errors.NotFound):
            await world.side.runs.wait("nobody")
        assert world.side.runs.ended("nobody") is None


async def test_use_of_a_process_grows_with_its_age(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        vm = await world.running_vm()
        pid = world.side.host.lock_holder(world.config(vm))
        assert pid is not None
        earlier = world.side.host.usage(pid)
        await asyncio.sleep(10)
        later = world.side.host.usage(pid)

        assert earlier is not None
        assert later is not None
        assert later.cpu > earlier.cpu
        assert world.side.host.usage(99_999) is None
