"""The two faces are one program: whatever is asked of them, in whatever order, they answer alike."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.contract.tart.faces import IMAGE, REAL, SMALL, VIRTUAL, Ended, Tart, run_case

NAMES = ("one", "two", "three", "four")
STEPS = 25
GUEST = {"address": 0, "agent": 0, "ready": 0, "work": 0, "then": "stay"}

Said = tuple[str, int, str]


def words(rng: random.Random) -> list[str]:
    """Return a command line that may or may not make sense by now."""
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


async def run(tart: Tart, line: list[str]) -> Ended:
    """Start a VM and return at its end, or with an ending of our own once its guest lives."""
    before = tart.face.guests()
    end = asyncio.ensure_future((await tart.start(*line)).end())
    await tart.until(lambda: end.done() or tart.has_more_guests_than(before))
    return end.result() if end.done() else Ended(-1, "lives", "")


async def ask(tart: Tart, line: list[str]) -> Ended:
    if line[0] == "run":
        return await run(tart, line)
    before = len(tart.face.guests())
    ended = await tart(*line, env={"CI": "1"})
    if line[0] in {"suspend", "stop"} and ended.code == 0:
        await tart.until(lambda: tart.face.holder(line[1]) is None)
        # A guest that is still going has its slot.
        await tart.until(lambda: len(tart.face.guests()) < before)
    return ended


def heard(line: list[str], ended: Ended) -> Said:
    """Return what must be alike: everything but moments, and percents, which depend on the speed."""
    told = ended.stdout if line[0] in {"exec", "fqn", "run"} else ""
    return " ".join(line), ended.code, told + ended.stderr


def answers(seed: int, target: str, root: Path) -> list[Said]:
    said: list[Said] = []

    async def case(tart: Tart) -> None:
        tart.configure(images={IMAGE: {**SMALL, "guest": GUEST}})
        for name in NAMES[:3]:
            await tart.done("clone", IMAGE, name)
        rng = random.Random(seed)
        for _ in range(STEPS):
            line = words(rng)
            said.append(heard(line, await ask(tart, line)))
        listed = await tart.done("list", "--quiet")
        said.append(("list", 0, listed))

    run_case(case, target, root)
    return said


@pytest.mark.parametrize("seed", [1, 22])
def test_both_faces_answer_alike(seed: int, tmp_path: Path) -> None:
    processes = answers(seed, REAL, tmp_path / "processes")
    virtual = answers(seed, VIRTUAL, tmp_path / "virtual")

    assert processes == virtual
    assert {code for _, code, _ in processes} >= {-1, 0, 2}
