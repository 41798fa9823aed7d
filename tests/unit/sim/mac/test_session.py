from __future__ import annotations

import asyncio
from pathlib import Path

from bramley.agent.programs import Finished
from tests.unit.sim.mac.worlds import World, a_mac

PRINT = ("sudo", "-n", "launchctl", "print", "gui/501")
KICK = ("sudo", "-n", "launchctl", "kickstart", "-k", "system/com.apple.loginwindow")


async def said(world: World, *argv: str) -> Finished:
    return await world.side.programs.run(argv)


async def test_a_session_is_told_while_it_lives(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        assert "session = Aqua" in (await said(world, *PRINT)).stdout

        world.mac.session.end()

        gone = await said(world, *PRINT)
        assert gone.code == 113
        assert gone.stdout == ""


async def test_without_a_session_no_vm_starts_and_one_that_runs_goes_on(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        running = await world.running_vm("one")
        world.mac.session.end()

        await world.start(await world.vm("two"))

        assert (await world.side.runs.wait("two")).code == 1
        assert "VZErrorDomain Code=-9" in world.side.runs.output_tail("two")
        assert world.side.runs.is_alive(running)


async def test_a_kick_brings_the_session_back_after_a_while(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.session.end()

        assert (await said(world, *KICK)).code == 0

        assert (await said(world, *PRINT)).code != 0
        await asyncio.sleep(5)
        assert (await said(world, *PRINT)).code == 0
        await world.running_vm()


async def test_a_kick_costs_the_vms_that_run(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        vm = await world.running_vm()

        await said(world, *KICK)

        assert (await world.side.runs.wait(vm)).code == 0
        assert "due to error" in world.side.runs.output_tail(vm)


async def test_a_hang_up_brings_no_session(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.session.end()

        assert (await said(world, "sudo", "-n", "killall", "-HUP", "loginwindow")).code == 0

        await asyncio.sleep(60)
        assert not world.mac.session.is_alive
        assert world.mac.session.kicks == ["killall -HUP loginwindow"]


async def test_only_root_kicks(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        assert (await said(world, *KICK[2:])).code == 1
        assert world.mac.session.is_alive


async def test_a_mac_without_automatic_login_stays_without_a_session(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.session.logs_in = False
        await said(world, *KICK)
        await asyncio.sleep(60)
        assert not world.mac.session.is_alive

        world.mac.reboot()
        assert not world.mac.session.is_alive

        world.mac.session.logs_in = True
        world.mac.reboot()
        assert world.mac.session.is_alive


async def test_sudo_finds_programs_of_this_mac_only(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        assert (await said(world, "sudo", "-n", "reboot")).code == 1
        assert (await said(world, "launchctl", "bootout", "system")).code == 64
