"""What `Programs` promises, on both sides."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent import programs
from bramley.agent.programs import Finished, ProgramMissing
from bramley.base import errors
from tests.contract.programs import stage as stages
from tests.contract.programs.stage import PATIENCE, Play, until


async def test_a_program_is_told_by_its_code_and_its_two_outputs(
    target: str, tmp_path: Path
) -> None:
    async with stages.on(target, tmp_path) as stage:
        said = await stage.programs.run(stage.argv(Play(out=["a", "b"], err=["c"], code=3)))

    assert said == Finished(3, "a\nb\n", "c\n")


async def test_lines_are_heard_while_the_program_runs(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage, asyncio.TaskGroup() as group:
        heard: list[str] = []
        argv = stage.argv(Play(out=["one", "two"], hangs=True))
        running = group.create_task(stage.programs.run(argv, on_line=heard.append))

        await until(lambda: heard == ["one", "two"])

        assert not running.done()
        running.cancel()


async def test_a_variable_is_added_to_the_programs_environment(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        argv = stage.argv(Play(tells_variable="TOLD"))

        said = await stage.programs.run(argv, environment={"TOLD": "by us"})

    assert said.stdout == "by us\n"


async def test_a_program_reads_what_it_is_given(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        said = await stage.programs.run(stage.argv(Play(echoes_input=True)), stdin=b"a secret\n")

    assert said.stdout == "a secret\n"


async def test_a_program_that_is_given_nothing_reads_nothing(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        said = await stage.programs.run(stage.argv(Play(echoes_input=True, out=["end"])))

    assert said == Finished(0, "end\n")


async def test_a_program_that_is_not_installed_is_missing(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        with pytest.raises(ProgramMissing):
            await stage.programs.run(["/usr/local/bin/no-such-program"])


async def test_cancelling_kills_the_program(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage, asyncio.TaskGroup() as group:
        running = group.create_task(stage.programs.run(stage.argv(Play(hangs=True))))
        await until(lambda: stage.living() > 0)

        running.cancel()
        await asyncio.wait([running])

        await until(lambda: stage.living() == 0)


async def test_a_program_that_misses_its_deadline_is_killed(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        argv = stage.argv(Play(hangs=True))

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(errors.TimedOut, match=r"0\.2 s"):
                await programs.run_with_timeout(timedelta(seconds=0.2), stage.programs, argv)

        await until(lambda: stage.living() == 0)


async def test_a_closed_gate_halts_a_program_and_an_open_one_lets_it_go_on(
    target: str, tmp_path: Path
) -> None:
    async with stages.on(target, tmp_path) as stage, asyncio.TaskGroup() as group:
        heard: list[str] = []
        gate = asyncio.Event()
        gate.set()
        end = tmp_path / "end"
        argv = stage.argv(Play(until=end))
        running = group.create_task(stage.programs.run(argv, on_line=heard.append, gate=gate))
        await until(lambda: len(heard) > 2)

        gate.clear()
        # A step that was being taken is finished, and a busy machine tells of it late; after that nothing comes.
        halted = -1
        while halted != len(heard):
            halted = len(heard)
            await asyncio.sleep(20 * stages.TICK)
        assert not running.done()

        gate.set()
        await until(lambda: len(heard) > halted)
        end.touch()
        assert (await running).stdout == "tick\n" * len(heard)


async def test_a_halted_program_can_be_killed(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage, asyncio.TaskGroup() as group:
        argv = stage.argv(Play(until=tmp_path / "never"))
        running = group.create_task(stage.programs.run(argv, gate=asyncio.Event()))
        await until(lambda: stage.living() > 0)
        await asyncio.sleep(10 * stages.TICK)

        running.cancel()
        await asyncio.wait([running])

        await until(lambda: stage.living() == 0)
