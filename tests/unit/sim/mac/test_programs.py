from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.programs import ProgramMissing, run_with_timeout
from bramley.base import errors
from tests.unit.sim.mac.simulated_macs import IMAGE, AgentOnMac, now, simulated_mac


async def test_program_that_is_not_installed_is_missing(host: AgentOnMac) -> None:
    with pytest.raises(ProgramMissing):
        await host.agent.programs.run(("pgrep", "-f", "tart"))


async def test_lines_are_reported_while_the_program_runs(tmp_path: Path) -> None:
    printed: list[tuple[float, str]] = []
    async with simulated_mac(tmp_path) as host:
        done = await host.agent.programs.run(
            ("tart", "pull", IMAGE),
            environment=host.environment,
            on_line=lambda line: printed.append((now(), line)),
        )

    assert done.stdout.splitlines() == [line for _, line in printed]
    assert printed[0][0] < printed[-1][0]


async def test_cancelled_call_kills_its_process_and_frees_its_locks(host: AgentOnMac) -> None:
    host.mac.faults.add("tart pull", "stall")
    with pytest.raises(errors.TimedOut):
        await run_with_timeout(
            timedelta(minutes=20),
            host.agent.programs,
            ("tart", "pull", IMAGE),
            environment=host.environment,
        )

    assert host.mac.table.living() == []
    host.mac.faults.clear()
    assert (await host.tart("pull", IMAGE)).code == 0


async def test_killed_pull_leaves_its_staging_and_the_next_command_removes_it(
    host: AgentOnMac,
) -> None:
    staging = host.mac.folders.tart_home / "tmp"
    host.mac.faults.add("tart pull", "stall", times=1)
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(host.tart("pull", IMAGE))
        await asyncio.sleep(300)
        pull.cancel()

    assert len(list(staging.iterdir())) == 1
    await host.tart("list")
    assert list(staging.iterdir()) == []


async def test_stopped_program_continues_when_its_gate_opens(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        pull = group.create_task(
            host.agent.programs.run(
                ("tart", "pull", IMAGE), environment=host.environment, gate=gate
            )
        )
        await asyncio.sleep(3600)
        assert not pull.done()
        gate.set()

        assert (await pull).code == 0


async def test_stopped_program_can_be_killed(host: AgentOnMac) -> None:
    with pytest.raises(errors.TimedOut):
        await run_with_timeout(
            timedelta(seconds=5),
            host.agent.programs,
            ("tart", "pull", IMAGE),
            environment=host.environment,
            gate=asyncio.Event(),
        )

    assert host.mac.table.living() == []


@pytest.mark.parametrize("program", ["launchctl", "sudo", "tailscale"])
async def test_any_program_can_hang(host: AgentOnMac, program: str) -> None:
    host.mac.faults.add(program, "hang", times=1)

    with pytest.raises(errors.TimedOut):
        await run_with_timeout(timedelta(seconds=9), host.agent.programs, (program, "ip", "-4"))

    assert now() == 9
    await run_with_timeout(timedelta(seconds=9), host.agent.programs, (program, "ip", "-4"))


async def test_any_program_can_fail_or_be_slow(host: AgentOnMac) -> None:
    host.mac.faults.add("tailscale", "fail", code=3, stderr="down", times=1)
    host.mac.faults.add("launchctl", "slow", seconds=7)

    failed = await host.agent.programs.run(("/usr/local/bin/tailscale", "ip", "-4"))
    healed = await host.agent.programs.run(("/usr/local/bin/tailscale", "ip", "-4"))
    assert (failed.code, failed.stderr) == (3, "down\n")
    assert healed.stdout == "100.64.0.11\n"

    await host.agent.programs.run(("/bin/launchctl", "print", "gui/501"))
    assert now() == 7


async def test_unsupported_fault_of_a_program_is_refused(host: AgentOnMac) -> None:
    with pytest.raises(ValueError, match="launchctl cannot no_space"):
        host.mac.faults.add("launchctl", "no_space")


async def test_full_disk_fails_a_pull_and_is_reported_by_the_host(
    host: AgentOnMac, tmp_path: Path
) -> None:
    host.mac.settings.host(disk_bytes=100_000_000_000, other_bytes=99_000_000_000)

    full = await host.tart("pull", IMAGE)

    assert full.code == 1
    assert "No space left on device" in full.stderr
    assert host.agent.host.space(tmp_path).free_share < 0.1
