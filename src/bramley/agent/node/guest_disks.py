"""How full the disks of running guests are, asked of each guest by `df`; a guest that does not answer has no say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from bramley.agent.programs import Finished
from bramley.base import errors

COMMAND = ("/bin/df", "-k", "/")
LIMIT = timedelta(seconds=15)


class Guests(Protocol):
    """Runs commands in guests; `tart.driver.Tart` does."""

    async def exec(self, vm: str, argv: Sequence[str], *, limit: timedelta) -> Finished:
        """Run a command in the guest of a VM."""
        ...


async def measure(guests: Guests, running: Callable[[], Iterable[str]]) -> Mapping[str, float]:
    """Return how full each running guest's disk is, in percent; all are asked at once."""
    vms = sorted(running())
    answers = await asyncio.gather(*(_ask(guests, vm) for vm in vms))
    return {vm: used for vm, used in zip(vms, answers, strict=True) if used is not None}


async def _ask(guests: Guests, vm: str) -> float | None:
    try:
        done = await guests.exec(vm, COMMAND, limit=LIMIT)
    except errors.BramleyError:
        return None
    return used_percent(done.stdout) if done.code == 0 else None


def used_percent(told: str) -> float | None:
    """Read the first column of percents of `df -k /`: that of blocks, which stands before that of inodes."""
    lines = told.strip().splitlines()
    if len(lines) < 2:
        return None
    for word in lines[-1].split():
        number = word.removesuffix("%")
        if number != word and number.isdecimal():
            return float(number)
    return None
