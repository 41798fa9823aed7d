"""Asks the guests of running VMs how they are, and believes a silence only when it lasts and nothing else explains it.

The same question serves for the disks, so a guest that answers costs nothing more. What was believed goes to `Ears`; nothing
is done about a guest that is silent: it may be starved and still at its job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bramley.agent.programs import Finished
from bramley.agent.tart import failures
from bramley.base import errors, log

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


logger = log.get(__name__)

# With the minute between two looks, and two questions that miss their limit, this tells a dead guest within 90 s.
DOUBT = timedelta(seconds=3)


class Ears(Protocol):
    """Remembers which guests answer; `pods.hearing.Hearing` does."""

    def doubts(self, vms: Iterable[str]) -> Collection[str]:
        """Return those whose silence would be news: they have answered before, and nobody was told otherwise."""
        ...

    def hear(self, *, answered: Iterable[str] = (), silent: Iterable[str] = ()) -> None:
        """Take what is certain."""
        ...


class Listening:
    """Asks all guests in each look; `ensure_well` raises what ails tart or the host, which would explain any silence."""

    def __init__(
        self,
        guests: Guests,
        ears: Ears,
        *,
        running: Callable[[], Iterable[str]],
        ensure_well: Callable[[], Awaitable[None]],
    ) -> None:
        self._guests = guests
        self._ears = ears
        self._running = running
        self._ensure_well = ensure_well

    async def look(self) -> Mapping[str, float]:
        """Return how full the disks of the guests are that answer."""
        first = await ask(self._guests, self._running())
        self._ears.hear(answered=first.heard)
        doubted = set(self._ears.doubts(first.silent))
        if not doubted or not await self._is_well():
            return first.disks
        await asyncio.sleep(DOUBT.total_seconds())
        # Who has ended meanwhile need not answer.
        again = await ask(self._guests, doubted.intersection(self._running()))
        self._ears.hear(answered=again.heard)
        if again.silent and await self._is_well():
            self._ears.hear(silent=again.silent)
        return {**first.disks, **again.disks}

    async def _is_well(self) -> bool:
        try:
            await self._ensure_well()
        except errors.BramleyError as error:
            logger.info("Silence of guests means nothing now", error=str(error))
            return False
        return True
