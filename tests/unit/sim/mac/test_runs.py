from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from bramley.base import errors
from tests.unit.sim.mac.simulated_macs import AgentOnMac, now, simulated_mac


async def test_run_ends_with_its_guest_and_has_its_end_time(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path, work=5) as host:
        vm = await host.running_vm()
        assert host.agent.runs.find_exit(vm) is None

        ended = await host.agent.runs.wait(vm)

        assert ended.code == 0
        assert ended.at == host.mac.clock.now()
        assert host.agent.runs.find_exit(vm) == ended
        assert host.agent.runs.output_tail(vm) == "guest has stopped the virtual machine"
        log = host.mac.folders.vm_logs / "vm.log"
        assert log.read_text() == "guest has stopped the virtual machine\n"


async def test_vm_name_is_run_once_until_it_is_forgotten(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path, work=1) as host:
        vm = await host.running_vm()
        with pytest.raises(errors.AlreadyExists):
            await host.start(vm)
        await host.agent.runs.wait(vm)
        with pytest.raises(errors.AlreadyExists):
            await host.start(vm)

        host.agent.runs.forget(vm)

        assert not host.agent.runs.exists(vm)
        await host.start(vm)


async def test_next_agent_reads_the_result_of_a_run_of_a_dead_agent(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path, work=30) as host:
        vm = await host.running_vm()
        host.agent.kill()
        await asyncio.sleep(100)
        host.next_agent()

        ended = host.agent.runs.find_exit(vm)

        assert ended is not None
        assert ended.code == 0
        assert await host.agent.runs.wait(vm) == ended


async def test_killed_tart_kills_its_guest(host: AgentOnMac) -> None:
    vm = await host.running_vm()
    assert host.agent.host.lock_holder(host.config(vm)) is not None
    assert len(host.agent.host.guest_processes()) == 2

    host.agent.runs.kill(vm)

    assert host.agent.host.lock_holder(host.config(vm)) is None
    assert host.agent.host.guest_processes() == []
    assert (await host.agent.runs.wait(vm)).code == -signal.SIGKILL


async def test_flock_on_a_vm_is_a_lock_without_a_holder(host: AgentOnMac) -> None:
    config = host.config(await host.vm("vm"))
    assert not host.agent.host.is_locked(config)
    process = host.mac.table.spawn(("backup",), lambda _: asyncio.sleep(10, 0))

    host.mac.tart.flocks.try_acquire(str(config), process)

    assert host.agent.host.is_locked(config)
    assert host.agent.host.lock_holder(config) is None
    await process.exit_code
    assert not host.agent.host.is_locked(config)


async def test_dead_agent_holds_and_acquires_no_locks(host: AgentOnMac) -> None:
    folder = host.mac.folders.tart_home / "tmp" / "download"
    folder.mkdir(parents=True)
    dead = host.agent
    assert dead.host.lock_folder(folder) is not None
    dead.kill()

    assert not dead.host.is_locked(folder)
    assert dead.host.lock_folder(folder) is None
    host.next_agent()
    assert host.agent.host.lock_folder(folder) is not None


async def test_leaked_guest_outlives_its_tart_until_the_host_reboots(host: AgentOnMac) -> None:
    host.mac.faults.add("tart run", "outlives", times=1)
    vm = await host.running_vm()
    host.agent.runs.kill(vm)
    await host.agent.runs.wait(vm)

    assert len(host.agent.host.guest_processes()) == 1
    for other in ("a", "b"):
        await host.start(await host.vm(other))
    ended = await host.agent.runs.wait("b")
    assert ended.code == 1
    assert "exceeds the system limit" in host.agent.runs.output_tail("b")

    host.mac.reboot()

    assert host.agent.host.guest_processes() == []


async def test_reboot_kills_all_runs_without_exit_codes(host: AgentOnMac) -> None:
    vm = await host.running_vm()
    before = host.agent.host.boot_id()
    host.agent.kill()

    host.mac.reboot()

    host.next_agent()
    assert host.agent.host.boot_id() != before
    assert host.mac.table.living() == []
    assert host.config(vm).exists()
    assert host.agent.host.lock_holder(host.config(vm)) is None
    ended = await host.agent.runs.wait(vm)
    assert (ended.code, ended.at) == (None, None)


async def test_run_without_supervisor_continues_and_ends_without_exit_code(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path, work=10) as host:
        vm = await host.running_vm()
        supervisor = host.mac.supervised[vm].supervisor
        assert supervisor is not None

        host.mac.table.kill(supervisor.pid)

        assert host.agent.runs.is_alive(vm)
        assert (await host.agent.runs.wait(vm)).code is None


async def test_stopping_a_vm_ends_its_run_with_code_0(host: AgentOnMac) -> None:
    vm = await host.running_vm()

    assert (await host.tart("stop", vm)).code == 0

    assert host.agent.runs.output_tail(vm) == "Stopping VM..."
    assert (await host.agent.runs.wait(vm)).code == 0


async def test_stuck_tart_is_killed_by_stop(host: AgentOnMac) -> None:
    host.mac.faults.add("tart run", "ignores_stop")
    vm = await host.running_vm()
    began = now()

    assert (await host.tart("stop", vm, "--timeout", "30")).code == 0

    assert now() - began >= 30
    assert (await host.agent.runs.wait(vm)).code == -signal.SIGKILL


async def test_guest_shutdown_ends_its_run(host: AgentOnMac) -> None:
    vm = await host.running_vm()
    await asyncio.sleep(5)

    assert (await host.tart("exec", vm, "sudo", "shutdown", "-h", "now")).code == 0

    assert (await host.agent.runs.wait(vm)).code == 0


async def test_waiting_for_a_run_that_never_began_is_an_error(host: AgentOnMac) -> None:
    with pytest.raises(errors.NotFound):
        await host.agent.runs.wait("unknown")
    assert host.agent.runs.find_exit("unknown") is None


async def test_usage_of_a_process_grows_with_its_age(host: AgentOnMac) -> None:
    vm = await host.running_vm()
    pid = host.agent.host.lock_holder(host.config(vm))
    assert pid is not None
    earlier = host.agent.host.usage(pid)
    await asyncio.sleep(10)
    later = host.agent.host.usage(pid)

    assert earlier is not None
    assert later is not None
    assert later.cpu > earlier.cpu
    assert host.agent.host.usage(99_999) is None
