from __future__ import annotations

import asyncio

from bramley.agent.programs import ProgramResult
from tests.unit.sim.mac.simulated_macs import AgentOnMac

PRINT = ("sudo", "-n", "launchctl", "print", "gui/501")
KICKSTART = ("sudo", "-n", "launchctl", "kickstart", "-k", "system/com.apple.loginwindow")


async def run(host: AgentOnMac, *argv: str) -> ProgramResult:
    return await host.agent.programs.run(argv)


async def test_live_session_is_reported(host: AgentOnMac) -> None:
    assert "session = Aqua" in (await run(host, *PRINT)).stdout

    host.mac.session.end()

    gone = await run(host, *PRINT)
    assert gone.code == 112
    assert gone.stdout == ""


async def test_session_is_shown_to_root_only(host: AgentOnMac) -> None:
    refused = await run(host, *PRINT[2:])

    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr == "Could not print domain: 1: Operation not permitted\n"


async def test_without_a_session_no_vm_starts_and_running_ones_continue(host: AgentOnMac) -> None:
    running = await host.running_vm("one")
    host.mac.session.end()

    await host.start(await host.vm("two"))

    assert (await host.agent.runs.wait("two")).code == 1
    assert "VZErrorDomain Code=-9" in host.agent.runs.output_tail("two")
    assert host.agent.runs.is_alive(running)


async def test_kickstart_restores_the_session_after_the_login_time(host: AgentOnMac) -> None:
    host.mac.session.end()

    assert (await run(host, *KICKSTART)).code == 0

    assert (await run(host, *PRINT)).code != 0
    await asyncio.sleep(5)
    assert (await run(host, *PRINT)).code == 0
    await host.running_vm()


async def test_kickstart_kills_running_vms(host: AgentOnMac) -> None:
    vm = await host.running_vm()

    await run(host, *KICKSTART)

    assert (await host.agent.runs.wait(vm)).code == 0
    assert "due to error" in host.agent.runs.output_tail(vm)


async def test_hang_up_restores_no_session(host: AgentOnMac) -> None:
    host.mac.session.end()

    assert (await run(host, "sudo", "-n", "killall", "-HUP", "loginwindow")).code == 0

    await asyncio.sleep(60)
    assert not host.mac.session.is_alive
    assert host.mac.session.loginwindow_commands == ["killall -HUP loginwindow"]


async def test_only_root_may_kickstart(host: AgentOnMac) -> None:
    assert (await run(host, *KICKSTART[2:])).code == 1
    assert host.mac.session.is_alive


async def test_without_automatic_login_no_session_is_restored(host: AgentOnMac) -> None:
    host.mac.session.logs_in = False
    await run(host, *KICKSTART)
    await asyncio.sleep(60)
    assert not host.mac.session.is_alive

    host.mac.reboot()
    assert not host.mac.session.is_alive

    host.mac.session.logs_in = True
    host.mac.reboot()
    assert host.mac.session.is_alive


async def test_sudo_finds_only_programs_of_this_mac(host: AgentOnMac) -> None:
    assert (await run(host, "sudo", "-n", "reboot")).code == 1
    assert (await run(host, "launchctl", "bootout", "system")).code == 64
