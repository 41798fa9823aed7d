"""What `Programs` promises, on both sides."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent import programs
from bramley.agent.programs import ProgramMissing, ProgramResult
from bramley.base import errors
from tests.contract.programs import targets
from tests.contract.programs.targets import TIMEOUT_SECONDS, Script, until


async def test_result_has_exit_code_stdout_and_stderr(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine:
        result = await machine.programs.run(machine.argv(Script(out=["a", "b"], err=["c"], code=3)))

    assert result == ProgramResult(3, "a\nb\n", "c\n")


async def test_lines_are_reported_while_the_program_runs(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine, asyncio.TaskGroup() as group:
        lines: list[str] = []
        argv = machine.argv(Script(out=["one", "two"], hangs=True))
        running = group.create_task(machine.programs.run(argv, on_line=lines.append))

        await until(lambda: lines == ["one", "two"])

        assert not running.done()
        running.cancel()


async def test_variable_is_added_to_the_programs_environment(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine:
        argv = machine.argv(Script(prints_variable="GIVEN"))

        result = await machine.programs.run(argv, environment={"GIVEN": "by us"})

    assert result.stdout == "by us\n"


async def test_program_reads_its_stdin(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine:
        result = await machine.programs.run(
            machine.argv(Script(echoes_input=True)), stdin=b"a secret\n"
        )

    assert result.stdout == "a secret\n"


async def test_program_without_stdin_reads_nothing(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine:
        result = await machine.programs.run(machine.argv(Script(echoes_input=True, out=["end"])))

    assert result == ProgramResult(0, "end\n")


async def test_program_that_is_not_installed_is_missing(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine:
        with pytest.raises(ProgramMissing):
            await machine.programs.run(["/usr/local/bin/no-such-program"])


async def test_cancelling_kills_the_program(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine, asyncio.TaskGroup() as group:
        running = group.create_task(machine.programs.run(machine.argv(Script(hangs=True))))
        await until(lambda: machine.living() > 0)

        running.cancel()
        await asyncio.wait([running])

        await until(lambda: machine.living() == 0)


async def test_program_that_misses_its_deadline_is_killed(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine:
        argv = machine.argv(Script(hangs=True))

        async with asyncio.timeout(TIMEOUT_SECONDS):
            with pytest.raises(errors.TimedOut, match=r"0\.2 s"):
                await programs.run_with_timeout(timedelta(seconds=0.2), machine.programs, argv)

        await until(lambda: machine.living() == 0)


async def test_closed_gate_stops_a_program_and_an_open_one_continues_it(
    target: str, tmp_path: Path
) -> None:
    async with targets.on(target, tmp_path) as machine, asyncio.TaskGroup() as group:
        lines: list[str] = []
        gate = asyncio.Event()
        gate.set()
        end = tmp_path / "end"
        argv = machine.argv(Script(until=end))
        running = group.create_task(machine.programs.run(argv, on_line=lines.append, gate=gate))
        await until(lambda: len(lines) > 2)

        gate.clear()
        # The current step is finished, and on a busy machine its line arrives late; after that no line comes.
        stopped_at = -1
        while stopped_at != len(lines):
            stopped_at = len(lines)
            await asyncio.sleep(20 * targets.TICK)
        assert not running.done()

        gate.set()
        await until(lambda: len(lines) > stopped_at)
        end.touch()
        assert (await running).stdout == "tick\n" * len(lines)


async def test_stopped_program_can_be_killed(target: str, tmp_path: Path) -> None:
    async with targets.on(target, tmp_path) as machine, asyncio.TaskGroup() as group:
        argv = machine.argv(Script(until=tmp_path / "never"))
        running = group.create_task(machine.programs.run(argv, gate=asyncio.Event()))
        await until(lambda: machine.living() > 0)
        await asyncio.sleep(10 * targets.TICK)

        running.cancel()
        await asyncio.wait([running])

        await until(lambda: machine.living() == 0)
