"""The contract of `Runs`, on both targets."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bramley.agent.runs import Run, RunExit
from bramley.base import errors
from tests.contract.programs import targets
from tests.contract.programs.targets import TIMEOUT_SECONDS, Script, Target, until

VM = "ns-pod-0123456789ab"


def a_run(machine: Target, script: Script) -> Run:
    return Run(VM, machine.argv(script))


@pytest.fixture
def machine(target: str, tmp_path: Path) -> AbstractAsyncContextManager[Target]:
    return targets.on(target, tmp_path)


async def test_run_that_was_never_begun_is_unknown(machine: Target) -> None:
    assert not machine.runs.exists(VM)
    assert not machine.runs.is_alive(VM)
    assert machine.runs.find_exit(VM) is None
    assert machine.runs.output_tail(VM) == ""
    machine.runs.kill(VM)
    machine.runs.forget(VM)
    with pytest.raises(errors.NotFound):
        await machine.runs.wait(VM)


async def test_run_lives_until_it_ends_with_code_and_time(machine: Target, tmp_path: Path) -> None:
    end = tmp_path / "end"
    await machine.runs.start(a_run(machine, Script(until=end, code=3)))
    assert machine.runs.exists(VM)
    assert machine.runs.is_alive(VM)
    assert machine.runs.find_exit(VM) is None

    end.touch()
    ended = await asyncio.wait_for(machine.runs.wait(VM), timeout=TIMEOUT_SECONDS)

    assert ended.code == 3
    assert ended.at is not None
    assert abs(datetime.now(UTC) - ended.at) < timedelta(seconds=TIMEOUT_SECONDS)
    assert machine.runs.find_exit(VM) == ended
    assert machine.runs.exists(VM)
    await until(lambda: not machine.runs.is_alive(VM))


async def test_run_that_ends_at_once_has_its_result(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(code=1)))

    assert (await asyncio.wait_for(machine.runs.wait(VM), timeout=TIMEOUT_SECONDS)).code == 1


async def test_run_gets_its_variables(machine: Target) -> None:
    argv = machine.argv(Script(prints_variable="GIVEN"))
    await machine.runs.start(Run(VM, argv, {"GIVEN": "by us"}))
    await machine.runs.wait(VM)

    assert machine.runs.output_tail(VM) == "by us"


async def test_run_is_never_begun_twice_before_it_is_forgotten(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(code=1)))
    with pytest.raises(errors.AlreadyExists):
        await machine.runs.start(a_run(machine, Script()))
    await machine.runs.wait(VM)
    machine.next_agent()
    with pytest.raises(errors.AlreadyExists):
        await machine.runs.start(a_run(machine, Script()))

    machine.runs.forget(VM)

    assert not machine.runs.exists(VM)
    assert machine.runs.find_exit(VM) is None
    await machine.runs.start(a_run(machine, Script(code=2)))
    assert (await machine.runs.wait(VM)).code == 2


async def test_run_that_lives_is_not_forgotten(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(hangs=True)))

    with pytest.raises(errors.Conflict):
        machine.runs.forget(VM)

    assert machine.runs.is_alive(VM)


async def test_run_survives_the_agent_and_the_next_one_gets_its_result(
    machine: Target, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    await machine.runs.start(a_run(machine, Script(until=end, code=3)))

    machine.next_agent()

    assert machine.runs.is_alive(VM)
    end.touch()
    assert (await asyncio.wait_for(machine.runs.wait(VM), timeout=TIMEOUT_SECONDS)).code == 3


async def test_end_without_an_agent_is_known_to_the_next_agent(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(out=["last words"], code=3)))
    await until(lambda: machine.living() == 0)

    machine.next_agent()
    await until(lambda: not machine.runs.is_alive(VM))

    ended = machine.runs.find_exit(VM)
    assert ended is not None
    assert ended.code == 3
    assert machine.runs.output_tail(VM) == "last words"


async def test_run_that_is_killed_ends_by_that_signal(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(hangs=True)))

    machine.runs.kill(VM)

    assert (await asyncio.wait_for(machine.runs.wait(VM), timeout=TIMEOUT_SECONDS)).code == -9
    await until(lambda: machine.living() == 0)


async def test_run_whose_supervisor_is_lost_has_no_code(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(hangs=True)))

    machine.lose_supervisor(VM)

    assert (await asyncio.wait_for(machine.runs.wait(VM), timeout=TIMEOUT_SECONDS)).code is None
    assert not machine.runs.is_alive(VM)


async def test_no_run_survives_a_reboot(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(hangs=True)))

    machine.reboot()
    machine.next_agent()

    assert machine.runs.exists(VM)
    assert not machine.runs.is_alive(VM)
    assert machine.runs.find_exit(VM) == RunExit(None, None)


async def test_output_tail_has_no_password(target: str, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    url = "vnc://:four-small-words-here@127.0.0.1:5900"
    async with targets.on(target, tmp_path) as machine:
        await machine.runs.start(a_run(machine, Script(out=[*lines, f"Opening {url}..."])))
        await machine.runs.wait(VM)

        result = machine.runs.output_tail(VM)

    assert result.splitlines()[-2:] == ["line 99", "Opening vnc://:REDACTED@127.0.0.1:5900..."]
    assert "line 1\n" not in result


async def test_output_tail_has_no_line_of_an_earlier_run(machine: Target) -> None:
    await machine.runs.start(a_run(machine, Script(out=["Stopping VM..."])))
    await machine.runs.wait(VM)
    machine.runs.forget(VM)

    await machine.runs.start(a_run(machine, Script(out=["second"])))
    await machine.runs.wait(VM)
    machine.next_agent()

    assert machine.runs.output_tail(VM, 200) == "second"
