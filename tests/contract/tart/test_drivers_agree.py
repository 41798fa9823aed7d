"""Both drivers have the same results for any sequence of commands."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.contract.tart.targets import IMAGE, REAL, SMALL, VIRTUAL, RunExit, Tart, run_case

NAMES = ("one", "two", "three", "four")
STEPS = 25
GUEST = {"address": 0, "agent": 0, "ready": 0, "work": 0, "then": "stay"}

Outcome = tuple[str, int, str]


def words(rng: random.Random) -> list[str]:
    """Return a command line that may be valid or not."""
    one, other = rng.sample(NAMES, 2)
    return rng.choice(
        [
            ["clone", IMAGE, one],
            ["clone", IMAGE, one],
            ["clone", one, other],
            ["run", one, "--no-graphics"],
            ["run", one, "--no-graphics"],
            ["run", one, "--no-graphics"],
            ["stop", one],
            ["suspend", one],
            ["exec", one, "echo", "hello"],
            ["rename", one, other],
            ["delete", one],
            ["get", one, "--nonsense"],
            ["list", "--source", "local"],
            ["delete", IMAGE],
            ["fqn", IMAGE],
            ["pull", IMAGE],
        ]
    )


async def run(tart: Tart, line: list[str]) -> RunExit:
    """Start a VM and return its result, or a made-up one when its guest runs."""
    before = tart.driver.guests()
    end = asyncio.ensure_future((await tart.start(*line)).end())
    await tart.until(lambda: end.done() or tart.has_more_guests_than(before))
    return end.result() if end.done() else RunExit(-1, "running", "")


async def call(tart: Tart, line: list[str]) -> RunExit:
    if line[0] == "run":
        return await run(tart, line)
    before = len(tart.driver.guests())
    ended = await tart(*line, env={"CI": "1"})
    if line[0] in {"suspend", "stop"} and ended.code == 0:
        await tart.until(lambda: tart.driver.holder(line[1]) is None)
        # A guest that is still ending has its slot.
        await tart.until(lambda: len(tart.driver.guests()) < before)
    return ended


def outcome_of(line: list[str], ended: RunExit) -> Outcome:
    """Return what must be equal: everything but times, and percents, which depend on the speed."""
    stdout = ended.stdout if line[0] in {"exec", "fqn", "run"} else ""
    return " ".join(line), ended.code, stdout + ended.stderr


def outcomes(seed: int, target: str, root: Path) -> list[Outcome]:
    found: list[Outcome] = []

    async def case(tart: Tart) -> None:
        tart.configure(images={IMAGE: {**SMALL, "guest": GUEST}})
        for name in NAMES[:3]:
            await tart.done("clone", IMAGE, name)
        rng = random.Random(seed)
        for _ in range(STEPS):
            line = words(rng)
            found.append(outcome_of(line, await call(tart, line)))
        listed = await tart.done("list", "--quiet")
        found.append(("list", 0, listed))

    run_case(case, target, root)
    return found


@pytest.mark.parametrize("seed", [1, 22])
def test_both_drivers_have_the_same_results(seed: int, tmp_path: Path) -> None:
    processes = outcomes(seed, REAL, tmp_path / "processes")
    virtual = outcomes(seed, VIRTUAL, tmp_path / "virtual")

    assert processes == virtual
    assert {code for _, code, _ in processes} >= {-1, 0, 2}
