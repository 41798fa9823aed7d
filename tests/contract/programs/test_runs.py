"""What `Runs` promises, on both sides."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bramley.agent.runs import Ended, Run
from bramley.base import errors
from tests.contract.programs import stage as stages
from tests.contract.programs.stage import PATIENCE, Play, Stage, until

VM = "ns-pod-0123456789ab"


def a_run(stage: Stage, play: Play) -> Run:
    return Run(VM, stage.argv(play))


async def test_a_run_that_was_never_begun_is_unknown(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        assert not stage.runs.exists(VM)
        assert not stage.runs.is_alive(VM)
        assert stage.runs.ended(VM) is None
        assert stage.runs.output_tail(VM) == ""
        stage.runs.kill(VM)
        stage.runs.forget(VM)
        with pytest.raises(errors.NotFound):
            await stage.runs.wait(VM)


async def test_a_run_lives_until_it_ends_with_code_and_time(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        end = tmp_path / "end"
        await stage.runs.start(a_run(stage, Play(until=end, code=3)))
        assert stage.runs.exists(VM)
        assert stage.runs.is_alive(VM)
        assert stage.runs.ended(VM) is None

        end.touch()
        ended = await asyncio.wait_for(stage.runs.wait(VM), timeout=PATIENCE)

        assert ended.code == 3
        assert ended.at is not None
        assert abs(datetime.now(UTC) - ended.at) < timedelta(seconds=PATIENCE)
        assert stage.runs.ended(VM) == ended
        assert stage.runs.exists(VM)
        await until(lambda: not stage.runs.is_alive(VM))


async def test_a_run_that_ends_at_once_is_told_like_any_other(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(code=1)))

        assert (await asyncio.wait_for(stage.runs.wait(VM), timeout=PATIENCE)).code == 1


async def test_a_run_gets_its_variables(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        argv = stage.argv(Play(tells_variable="TOLD"))
        await stage.runs.start(Run(VM, argv, {"TOLD": "by us"}))
        await stage.runs.wait(VM)

        assert stage.runs.output_tail(VM) == "by us"


async def test_a_run_is_never_begun_twice_before_it_is_forgotten(
    target: str, tmp_path: Path
) -> None:
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(code=1)))
        with pytest.raises(errors.AlreadyExists):
            await stage.runs.start(a_run(stage, Play()))
        await stage.runs.wait(VM)
        stage.next_agent()
        with pytest.raises(errors.AlreadyExists):
            await stage.runs.start(a_run(stage, Play()))

        stage.runs.forget(VM)

        assert not stage.runs.exists(VM)
        assert stage.runs.ended(VM) is None
        await stage.runs.start(a_run(stage, Play(code=2)))
        assert (await stage.runs.wait(VM)).code == 2


async def test_a_run_that_lives_is_not_forgotten(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(hangs=True)))

        with pytest.raises(errors.Conflict):
            stage.runs.forget(VM)

        assert stage.runs.is_alive(VM)


async def test_a_run_survives_the_agent_and_the_next_one_hears_its_end(
    target: str, tmp_path: Path
) -> None:
    async with stages.on(target, tmp_path) as stage:
        end = tmp_path / "end"
        await stage.runs.start(a_run(stage, Play(until=end, code=3)))

        stage.next_agent()

        assert stage.runs.is_alive(VM)
        end.touch()
        assert (await asyncio.wait_for(stage.runs.wait(VM), timeout=PATIENCE)).code == 3


async def test_an_end_that_no_agent_saw_is_known_to_the_next_one(
    target: str, tmp_path: Path
) -> None:
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(out=["last words"], code=3)))
        await until(lambda: stage.living() == 0)

        stage.next_agent()
        await until(lambda: not stage.runs.is_alive(VM))

        ended = stage.runs.ended(VM)
        assert ended is not None
        assert ended.code == 3
        assert stage.runs.output_tail(VM) == "last words"


async def test_a_run_that_is_killed_ends_by_that_signal(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(hangs=True)))

        stage.runs.kill(VM)

        assert (await asyncio.wait_for(stage.runs.wait(VM), timeout=PATIENCE)).code == -9
        await until(lambda: stage.living() == 0)


async def test_a_run_whose_supervisor_is_lost_has_no_code(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(hangs=True)))

        stage.lose_supervisor(VM)

        assert (await asyncio.wait_for(stage.runs.wait(VM), timeout=PATIENCE)).code is None
        assert not stage.runs.is_alive(VM)


async def test_no_run_survives_a_reboot(target: str, tmp_path: Path) -> None:
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(hangs=True)))

        stage.reboot()
        stage.next_agent()

        assert stage.runs.exists(VM)
        assert not stage.runs.is_alive(VM)
        assert stage.runs.ended(VM) == Ended(None, None)


async def test_the_last_words_hold_no_password(target: str, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    url = "vnc://:four-small-words-here@127.0.0.1:5900"
    async with stages.on(target, tmp_path) as stage:
        await stage.runs.start(a_run(stage, Play(out=[*lines, f"Opening {url}..."])))
        await stage.runs.wait(VM)

        said = stage.runs.output_tail(VM)

    assert said.splitlines()[-2:] == ["line 99", "Opening vnc://:REDACTED@127.0.0.1:5900..."]
    assert "line 1\n" not in said
