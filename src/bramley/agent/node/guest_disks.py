"""How full the disks of running guests are, asked of each guest by `df`; and with that, which guests answer at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bramley.agent.programs import Finished
from bramley.agent.tart import failures
from bramley.base import errors

COMMAND = ("/bin/df", "-k", "/")
# A little more than what tart itself waits for a guest's agent.
LIMIT = timedelta(seconds=12)


class Guests(Protocol):
    """Runs commands in guests; `tart.driver.Tart` does."""

    async def exec(self, vm: str, argv: Sequence[str], *, limit: timedelta) -> Finished:
        """Run a command in the guest of a VM."""
        ...


@dataclass(frozen=True, slots=True)
class Answers:
    """What guests said: how full the disks are, in percent, who answered, and who did not; some may be in neither."""

    disks: Mapping[str, float]
    heard: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()


async def ask(guests: Guests, vms: Iterable[str]) -> Answers:
    """Ask these guests, all at once."""
    names = sorted(vms)
    said = await asyncio.gather(*(_ask(guests, vm) for vm in names))
    told = {vm: done for vm, done in zip(names, said, strict=True) if done is not None}
    heard = frozenset(vm for vm, done in told.items() if done.code == 0)
    fills = {vm: used_percent(told[vm].stdout) for vm in heard}
    return Answers(
        disks={vm: used for vm, used in fills.items() if used is not None},
        heard=heard,
        silent=frozenset(told) - heard,
    )


async def _ask(guests: Guests, vm: str) -> Finished | None:
    """Return how the command ended; None if that says nothing about the guest."""
    try:
        done = await guests.exec(vm, COMMAND, limit=LIMIT)
    except errors.TimedOut:
        return Finished(code=-1)
    except errors.BramleyError:
        return None
    is_over = failures.says_not_running(done) or failures.says_missing(done)
    return None if is_over else done


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
