from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.programs import ProgramMissing, run_with_timeout
from bramley.base import errors
from tests.unit.sim.mac.worlds import IMAGE, a_mac, now


async def test_a_program_that_is_not_installed_is_missing(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        with pytest.raises(ProgramMissing):
            await world.side.programs.run(("pgrep", "-f", "tart"))


async def test_lines_are_heard_while_the_program_runs(tmp_path: Path) -> None:
    heard: list[tuple[float, str]] = []
    async with a_mac(tmp_path) as world:
        done = await world.side.programs.run(
            ("tart", "pull", IMAGE),
            environment=world.environment,
            on_line=lambda line: heard.append((now(), line)),
        )

    assert done.stdout.splitlines() == [line for _, line in heard]
    assert heard[0][0] < heard[-1][0]


async def test_a_cancelled_call_kills_its_process_and_frees_its_locks(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.faults.add("tart pull", "stall")
        with pytest.raises(errors.TimedOut):
            await run_with_timeout(
                timedelta(minutes=20),
                world.side.programs,
                ("tart", "pull", IMAGE),
                environment=world.environment,
            )

        assert world.mac.table.living() == []
        world.mac.faults.heal()
        assert (await world.tart("pull", IMAGE)).code == 0


async def test_a_killed_pull_leaves_what_it_had_and_the_next_command_sweeps_it(
    tmp_path: Path,
) -> None:
    async with a_mac(tmp_path) as world:
        staging = world.mac.folders.tart_home / "tmp"
        world.mac.faults.add("tart pull", "stall", times=1)
        async with asyncio.TaskGroup() as group:
            pull = group.create_task(world.tart("pull", IMAGE))
            await asyncio.sleep(300)
            pull.cancel()

        assert len(list(staging.iterdir())) == 1
        await world.tart("list")
        assert list(staging.iterdir()) == []


async def test_a_stopped_program_goes_on_when_its_gate_opens(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        pull = group.create_task(
            world.side.programs.run(
                ("tart", "pull", IMAGE), environment=world.environment, gate=gate
            )
        )
        await asyncio.sleep(3600)
        assert not pull.done()
        gate.set()

        assert (await pull).code == 0


async def test_a_stopped_program_can_be_killed(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        with pytest.raises(errors.TimedOut):
            await run_with_timeout(
                timedelta(seconds=5),
                world.side.programs,
                ("tart", "pull", IMAGE),
                environment=world.environment,
                gate=asyncio.Event(),
            )

        assert world.mac.table.living() == []


@pytest.mark.parametrize("program", ["launchctl", "sudo", "tailscale"])
async def test_any_program_can_hang(program: str, tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.faults.add(program, "hang", times=1)

        with pytest.raises(errors.TimedOut):
            await run_with_timeout(timedelta(seconds=9), world.side.programs, (program, "ip", "-4"))

        assert now() == 9
        await run_with_timeout(timedelta(seconds=9), world.side.programs, (program, "ip", "-4"))


async def test_any_program_can_fail_or_be_slow(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.faults.add("tailscale", "fail", code=3, stderr="down", times=1)
        world.mac.faults.add("launchctl", "slow", seconds=7)

        failed = await world.side.programs.run(("/usr/local/bin/tailscale", "ip", "-4"))
        healed = await world.side.programs.run(("/usr/local/bin/tailscale", "ip", "-4"))
        assert (failed.code, failed.stderr) == (3, "down\n")
        assert healed.stdout == "100.64.0.11\n"

        await world.side.programs.run(("/bin/launchctl", "print", "gui/501"))
        assert now() == 7


async def test_a_fault_that_a_program_cannot_have_is_refused(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        with pytest.raises(ValueError, match="launchctl cannot no_space"):
            world.mac.faults.add("launchctl", "no_space")


async def test_a_full_disk_fails_a_pull_and_is_reported_by_the_host(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        world.mac.settings.host(disk_bytes=100_000_000_000, other_bytes=99_000_000_000)

        full = await world.tart("pull", IMAGE)

        assert full.code == 1
        assert "No space left on device" in full.stderr
        assert world.side.host.space(tmp_path).free_share < 0.1
