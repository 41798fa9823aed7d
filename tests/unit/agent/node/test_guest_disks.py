from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from bramley.agent.node import guest_probes
from bramley.agent.programs import ProgramResult
from bramley.base import errors

MACOS = """\
Filesystem     1024-blocks     Used Available Capacity iused     ifree %iused  Mounted on
/dev/disk3s1s1    48828125 10747904  33554432    25%  404167 335544320    0%   /
"""
FULL = MACOS.replace("25%", "93%")
LINUX = "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/vda1 100 91 9 91% /\n"


class Guests:
    """Results by VM; None hangs until the limit."""

    def __init__(self, **output: str | int | None) -> None:
        self.output = output

    async def exec(self, vm: str, argv: Sequence[str], *, limit: timedelta) -> ProgramResult:
        assert tuple(argv) == ("/bin/df", "-k", "/")
        answer = self.output[vm]
        if answer is None:
            await asyncio.sleep(limit.total_seconds())
            raise errors.TimedOut("no answer")
        if isinstance(answer, int):
            return ProgramResult(answer)
        return ProgramResult(0, answer)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (MACOS, 25.0),
        (FULL, 93.0),
        (LINUX, 91.0),
        ("", None),
        ("Filesystem\n", None),
        ("a\nb c d\n", None),
    ],
)
def test_used_blocks_are_read_and_not_used_inodes(output: str, expected: float | None) -> None:
    assert guest_probes.used_percent(output) == expected


async def test_guests_are_probed_concurrently_and_silent_ones_are_left_out() -> None:
    guests = Guests(a=MACOS, b=None, c=FULL, d=1)
    began = asyncio.get_running_loop().time()

    results = await guest_probes.probe_guests(guests, ["a", "b", "c", "d"])

    assert results.disks == {"a": 25.0, "c": 93.0}
    assert (set(results.responsive), set(results.unresponsive)) == ({"a", "c"}, {"b", "d"})
    assert asyncio.get_running_loop().time() - began == guest_probes.TIMEOUT.total_seconds()


@pytest.mark.parametrize(
    "output",
    [
        ProgramResult(2, stderr='VM "a" is not running'),
        ProgramResult(2, stderr='the specified VM "a" does not exist'),
        errors.Unavailable("no process can be started now"),
    ],
    ids=["has ended", "is gone", "cannot be probed"],
)
async def test_failure_outside_the_guest_is_neither_an_answer_nor_silence(
    output: ProgramResult | errors.BramleyError,
) -> None:
    class Tart:
        async def exec(self, *_: object, **__: object) -> ProgramResult:
            if isinstance(output, ProgramResult):
                return output
            raise output

    results = await guest_probes.probe_guests(Tart(), ["a"])

    assert results == guest_probes.ProbeResults({})
